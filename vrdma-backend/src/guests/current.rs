//! The configuration as it is: that of the start, with what was changed since.

use crate::config::Config;
use std::sync::{Arc, Mutex};

/// The configuration as it is. Clones are one: a change of one is a change of all.
#[derive(Clone, Debug)]
pub struct CurrentConfig(Arc<Mutex<Arc<Config>>>);

impl CurrentConfig {
    /// Begins with the configuration of the start.
    pub fn new(config: Config) -> CurrentConfig {
        CurrentConfig(Arc::new(Mutex::new(Arc::new(config))))
    }

    /// Returns the configuration.
    pub fn get(&self) -> Arc<Config> {
        self.0.lock().expect("no thread panics with it").clone()
    }

    /// Replaces the configuration.
    pub(super) fn set(&self, config: Config) {
        *self.0.lock().expect("no thread panics with it") = Arc::new(config);
    }
}
