# Prints the files, users and groups of a machine, sorted. Of what is lost with each boot, only ours.
{
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /mnt \
        -o -path /srv -o -path /opt -o -path /root/packages \) -prune -o -print
    find /run -maxdepth 1 -name 'vrdma*'
    getent passwd | sed 's/:.*//; s/^/user /'
    getent group | sed 's/:.*//; s/^/group /'
} | LC_ALL=C sort
