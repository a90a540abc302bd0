//! Loads the configuration from flags and file.

use super::file::File;
use super::{Args, Config};
use anyhow::Result;

impl Config {
    /// Loads the configuration from flags, and from the file that they name.
    ///
    /// # Errors
    /// The file cannot be read, or the configuration makes no sense. The message says which part.
    pub fn load(args: &Args) -> Result<Config> {
        let file = args.config.as_deref().map(File::read).transpose()?;
        Config::load_checked(args, file, |config| config.check())
    }

    /// Loads the configuration again, for a daemon that runs with it.
    ///
    /// # Errors
    /// Those of [`Config::load`]. An empty file is an error too: it is about to be written.
    pub fn load_again(args: &Args) -> Result<Config> {
        let file = args.config.as_deref().map(File::read).transpose()?;
        file.as_ref().map_or(Ok(()), File::ensure_text)?;
        Config::load_checked(args, file, |config| config.check_running(config.uplink.is_some()))
    }

    fn load_checked(
        args: &Args,
        file: Option<File>,
        check: impl FnOnce(&Config) -> Result<()>,
    ) -> Result<Config> {
        let said = file.as_ref().map(File::keys::<Config>).transpose()?.unwrap_or_default();
        let mut flags = toml::Table::try_from(&args.keys)?;
        if let Some(level) = args.verbose_level() {
            flags.insert("log".into(), toml::Value::try_from(level)?);
        }
        // Flags are keys of the file, and override its values.
        let mut keys = toml::Table::try_from(&said)?;
        keys.extend(flags.clone());
        let mut config: Config = keys.try_into()?;
        config.guests.extend(args.guest.iter().cloned());
        config.file = args.config.clone();
        check(&config).map_err(|error| match &file {
            Some(file) => file.locate(error, &flags),
            None => error,
        })?;
        Ok(config)
    }
}
