//! What a VM needs before others can reach it: a listener, an IPv6 address.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Vm;

/// Returns a shell command that succeeds once programs listen by rdma_cm.
///
/// Each program must also have returned from rdma_listen(3). No program reports that it listens.
/// The kernel's table of identifiers shows it, but too early. The kernel writes the new state
/// before it asks the device, and an iWARP device refuses connections in between.
///
/// So no thread of a listening program may still be in that call. A thread that runs on a processor
/// has no stack to read, and is checked again.
///
/// `prefix` stands before the command that reads the table, e.g. `ip netns exec NAME`.
pub fn cm_listens(prefix: &str) -> String {
    let listeners = format!(
        "p=$({prefix} rdma resource show cm_id | sed -n 's/.*state LISTEN .* pid \\([0-9]*\\) .*/\\1/p')"
    );
    let stacks = "for t in $(printf '/proc/%s/task/* ' $p); do s=$(cat $t/stack); echo ${s:-running}; done";
    format!("{{ {listeners}; [ \"$p\" ] && ! {{ {stacks}; }} 2>&1 | grep -qw -e ucma_listen -e running; }}")
}

impl Vm {
    /// Waits until a program of this VM listens by rdma_cm.
    ///
    /// # Errors
    ///
    /// No program listens within this time.
    pub fn wait_for_cm_listener(&self, patience: Duration) -> Result<()> {
        self.wait_for_cm_listener_in("", patience)
    }

    /// Waits until a program listens by rdma_cm, as seen by a command behind `prefix`.
    ///
    /// A prefix is e.g. `ip netns exec NAME`.
    ///
    /// # Errors
    ///
    /// No program listens within this time.
    pub fn wait_for_cm_listener_in(&self, prefix: &str, patience: Duration) -> Result<()> {
        let waits = format!("until {}; do sleep 0.05; done", cm_listens(prefix));
        self.check(&waits, patience).context("no program listens by rdma_cm").map(|_| ())
    }

    /// Gives eth0 an IPv6 address, and waits until the kernel resolves addresses by it.
    ///
    /// Linux resolves no IPv6 address for RDMA until its link-local address has passed duplicate
    /// address detection. Before, it has no source for the solicitation, since no IP packet waits.
    /// Detection takes seconds after the netdev came up.
    ///
    /// # Errors
    ///
    /// An address is still tentative after this time.
    pub fn add_ipv6(&self, address: &str, patience: Duration) -> Result<()> {
        let script = format!(
            "ip address replace {address}/64 dev eth0 nodad &&
            until test -z \"$(ip -6 address show dev eth0 tentative)\"; do sleep 0.1; done"
        );
        self.check(&script, patience).with_context(|| format!("no address {address} of eth0")).map(|_| ())
    }
}
