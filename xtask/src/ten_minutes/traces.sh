# Prints the files of a machine, sorted.
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /mnt \
    -o -path /srv -o -path /opt -o -path /root/packages \) -prune -o -print | LC_ALL=C sort
