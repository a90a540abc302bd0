echo guest >/etc/hostname
echo '/dev/vda1 / ext4 defaults 0 1' >/etc/fstab
# The device on the way to the Internet.
printf '[Match]\nName=enp0s4\n[Network]\nDHCP=ipv4\n' >/etc/systemd/network/lan.network
systemctl enable systemd-networkd ssh
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -C host -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
# An emulated processor checks and measures slowly, and its timers come late on a busy machine.
cat >/boot/early.cfg <<END
linux (hd0,msdos1)/vmlinuz root=/dev/vda1 rw console=ttyS0 loglevel=5 no_timer_check tsc=reliable \
mitigations=off nowatchdog no5lvl audit=0 cryptomgr.notests random.trust_cpu=on
initrd (hd0,msdos1)/initrd.img
boot
END
grub-mkimage --format i386-pc --prefix '(hd0,msdos1)/boot/grub' --config /boot/early.cfg \
    --output /boot/core.img biosdisk part_msdos ext2 linux boot
# Without a password of root, sudo cannot be removed.
echo "root:$(head -c 18 /dev/urandom | base64)" | chpasswd
