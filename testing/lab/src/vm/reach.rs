//! What a VM needs before others reach it: a listener, an address of IPv6.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Vm;

/// A shell command that succeeds once programs listen by rdma_cm, and each is past its call of
/// rdma_listen(3).
///
/// No program says that it listens. The kernel's table of identifiers does, but too early: the
/// kernel asks the device after it has written the new state. An iWARP device refuses who connects
/// in between. So no thread of a program that listens may still be in that call. A thread that is
/// on a processor has no stack to read, and is looked at again.
///
/// `prefix` stands before the command that reads the table, such as `ip netns exec NAME`.
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
    /// None listens within this time.
    pub fn wait_for_cm_listener(&self, patience: Duration) -> Result<()> {
        self.wait_for_cm_listener_in("", patience)
    }

    /// Waits until a program listens by rdma_cm, as seen by a command behind `prefix`, such as `ip
    /// netns exec NAME`.
    ///
    /// # Errors
    ///
    /// None listens within this time.
    pub fn wait_for_cm_listener_in(&self, prefix: &str, patience: Duration) -> Result<()> {
        let waits = format!("until {}; do sleep 0.05; done", cm_listens(prefix));
        self.check(&waits, patience).context("no program listens by rdma_cm").map(|_| ())
    }

    /// Gives eth0 an address of IPv6, and waits until the kernel resolves others by it.
    ///
    /// Until its link-local address has passed duplicate address detection, Linux resolves no
    /// address of IPv6 for RDMA: it has no source for the solicitation, since no packet of IP
    /// waits. That takes seconds after the netdev came up.
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
