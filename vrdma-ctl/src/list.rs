//! `list` and `version`.

use crate::connection::Connection;
use crate::{print, sheets};
use anyhow::Result;
use serde_json::json;
use vrdma_admin::daemon::GetDaemon;
use vrdma_admin::guest::ListGuests;

/// Lists the guests.
///
/// # Errors
/// The daemon does not answer.
pub fn list(connection: &Connection, json: bool) -> Result<()> {
    let found = connection.to_observe()?.call(&ListGuests {})?;
    if json { print::json(&found) } else { print::table(&sheets::guests(&found.guests), "there is no guest") }
}

/// Prints the versions of this program and of the daemon.
///
/// # Errors
/// The daemon does not answer. Its own version is printed nevertheless.
pub fn version(connection: &Connection, json: bool) -> Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    let daemon = connection.to_observe().and_then(|mut client| client.call(&GetDaemon {}));
    let theirs = daemon.as_ref().ok().map(|daemon| &daemon.version);
    if json {
        print::json(&json!({"vrdma-ctl": own, "vrdma-backend": theirs}))?;
    } else {
        print::line(&format!("vrdma-ctl {own}"))?;
        if let Ok(daemon) = &daemon {
            let (version, pid, uptime) = (&daemon.version, daemon.pid, daemon.uptime);
            print::line(&format!("vrdma-backend {version}, process {pid}, for {uptime} s"))?;
        }
    }
    daemon.map(drop).map_err(Into::into)
}
