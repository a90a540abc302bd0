//! Writes the archive format that the kernel unpacks as initramfs ("newc").

use std::io::{self, Write};

/// An initramfs under construction. Add a directory before its entries.
pub struct Archive<W> {
    to: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub fn new(to: W) -> Self {
        Self { to, inode: 0 }
    }

    /// Adds a directory.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, 0o040_755, (0, 0), &[])
    }

    /// Adds a file; `mode` holds its permissions.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, 0o100_000 | mode, (0, 0), content)
    }

    /// Adds a character device.
    pub fn device(&mut self, name: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(name, 0o020_600, (major, minor), &[])
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(|_| io::Error::other("file too large for newc"))?;
        let fields = [
            self.inode,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time: fixed, so that equal inputs give equal archives
            size,
            0, // device that holds the file
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum, unused
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.to.write_all(header.as_bytes())?;
        self.to.write_all(name.as_bytes())?;
        self.to.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.to.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.to.write_all(&[0; 3][..length.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_sized() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("bin").unwrap();
        archive.file("bin/a", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        // The header has 110 bytes; name and padding follow. The file's size is the seventh field.
        assert_eq!(&bytes[..6], b"070701");
        let file = &bytes[116..];
        assert_eq!(&file[..6], b"070701");
        assert_eq!(&file[6 + 6 * 8..6 + 7 * 8], b"00000005");
        assert_eq!(&file[110..116], b"bin/a\0");
        assert_eq!(&file[116..121], b"hello");
    }
}
