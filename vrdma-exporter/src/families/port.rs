//! Series of ports: the uplink, and the Ethernet functions of guests.

use crate::family::{Family, Kind, Quantity, Row};
use crate::snapshot::Scope;

/// The families.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "port_up",
        help: "Whether the link of the uplink is up, or a front-end of the guest is connected.",
        cause: "0 of the uplink: no carrier, or the interface is down or gone.",
        kind: Kind::Gauge,
        quantity: Quantity::Things,
        scope: Scope::Port,
        labels: &[],
        rows: &[Row { values: &[], sources: &["up"] }],
    },
    Family {
        name: "port_mtu",
        help: "Longest IP packet that the uplink takes.",
        cause: "",
        kind: Kind::Gauge,
        quantity: Quantity::Bytes,
        scope: Scope::Port,
        labels: &[],
        rows: &[Row { values: &[], sources: &["mtu"] }],
    },
    Family {
        name: "port_frames",
        help: "Frames that the guest or the uplink sent (tx) and received (rx).",
        cause: "",
        kind: Kind::Counter,
        quantity: Quantity::Things,
        scope: Scope::Port,
        labels: &["direction"],
        rows: &[
            Row { values: &["tx"], sources: &["net.tx_frames"] },
            Row { values: &["rx"], sources: &["net.rx_frames"] },
            Row { values: &["tx"], sources: &["uplink.frames_sent"] },
            Row { values: &["rx"], sources: &["uplink.frames_received"] },
        ],
    },
    Family {
        name: "port",
        help: "Bytes that the guest or the uplink sent (tx) and received (rx).",
        cause: "",
        kind: Kind::Counter,
        quantity: Quantity::Bytes,
        scope: Scope::Port,
        labels: &["direction"],
        rows: &[
            Row { values: &["tx"], sources: &["net.tx_bytes"] },
            Row { values: &["rx"], sources: &["net.rx_bytes"] },
            Row { values: &["tx"], sources: &["uplink.bytes_sent"] },
            Row { values: &["rx"], sources: &["uplink.bytes_received"] },
        ],
    },
    Family {
        name: "port_dropped_frames",
        help: "Frames that were dropped on the way from the guest or the uplink (tx) or to it (rx).",
        cause: "`forbidden`: a foreign address or VLAN. `no_buffer` of a guest: too few receive buffers. \
                `ring_full`, `missed`: frames come faster than the worker takes them. `oversize`: the MTUs of \
                both sides differ.",
        kind: Kind::Counter,
        quantity: Quantity::Things,
        scope: Scope::Port,
        labels: &["direction", "reason"],
        rows: &[
            Row { values: &["tx", "forbidden"], sources: &["net.tx_spoofed", "net.tx_vlan"] },
            Row {
                values: &["tx", "invalid"],
                sources: &["net.tx_bad_header", "net.tx_bad_checksum", "net.tx_oversize"],
            },
            Row { values: &["tx", "flood"], sources: &["net.tx_flood_limited"] },
            Row { values: &["tx", "refused"], sources: &["net.tx_refused"] },
            Row { values: &["rx", "no_buffer"], sources: &["net.rx_no_buffer"] },
            Row { values: &["rx", "oversize"], sources: &["net.rx_oversize", "net.rx_scattered"] },
            Row { values: &["rx", "no_driver"], sources: &["net.rx_no_driver"] },
            Row { values: &["tx", "link_down"], sources: &["uplink.tx_link_down"] },
            Row { values: &["tx", "no_buffer"], sources: &["uplink.tx_no_buffer"] },
            Row { values: &["tx", "full"], sources: &["uplink.tx_full"] },
            Row { values: &["tx", "oversize"], sources: &["uplink.tx_oversize"] },
            Row { values: &["tx", "error"], sources: &["uplink.driver_tx_errors"] },
            Row { values: &["rx", "oversize"], sources: &["uplink.rx_oversize"] },
            Row { values: &["rx", "ring_full"], sources: &["uplink.rx_ring_full"] },
            Row { values: &["rx", "missed"], sources: &["uplink.driver_rx_missed"] },
            Row { values: &["rx", "no_buffer"], sources: &["uplink.driver_rx_no_mbuf"] },
            Row { values: &["rx", "error"], sources: &["uplink.driver_rx_errors"] },
        ],
    },
    Family {
        name: "port_link_changes",
        help: "Times that the link of the uplink went down or up.",
        cause: "A cable, a switch, or an interface that was made anew.",
        kind: Kind::Counter,
        quantity: Quantity::Things,
        scope: Scope::Port,
        labels: &[],
        rows: &[Row { values: &[], sources: &["uplink.link_changes"] }],
    },
];
