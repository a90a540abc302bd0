//! Capabilities of a QP: limits of its queues and requests.

use crate::verbs::attr::QpInit;

/// Capabilities of a QP: limits of its queues and requests.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Caps {
    pub(crate) send_wr: u16,
    pub(crate) recv_wr: u16,
    pub(crate) inline: u16,
    pub(crate) send_sge: u8,
    pub(crate) recv_sge: u8,
}

impl Caps {
    /// Whether the parameters of a QP fit into this type, so that a query can report them.
    pub(crate) fn can_hold(init: &QpInit) -> bool {
        let words = [init.max_send_wr, init.max_recv_wr, init.max_inline];
        let bytes = [init.max_send_sge, init.max_recv_sge];
        words.iter().all(|&word| word <= u16::MAX.into()) && bytes.iter().all(|&byte| byte <= u8::MAX.into())
    }

    /// Makes the capabilities of a QP, all of which [fit](Caps::can_hold).
    pub(crate) fn new(init: &QpInit) -> Caps {
        let word = |value: u32| value.min(u32::from(u16::MAX)) as u16;
        let byte = |value: u32| value.min(u32::from(u8::MAX)) as u8;
        Caps {
            send_wr: word(init.max_send_wr),
            recv_wr: word(init.max_recv_wr),
            inline: word(init.max_inline),
            send_sge: byte(init.max_send_sge),
            recv_sge: byte(init.max_recv_sge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::qp_init;

    #[test]
    fn what_cannot_be_told_later_is_not_taken() {
        let most = QpInit {
            max_send_wr: 0xffff,
            max_recv_wr: 0xffff,
            max_inline: 0xffff,
            max_send_sge: 0xff,
            max_recv_sge: 0xff,
            ..qp_init(crate::PdId(1))
        };
        assert!(Caps::can_hold(&most));
        for more in [
            QpInit { max_send_wr: 0x10000, ..most },
            QpInit { max_recv_wr: 0x10000, ..most },
            QpInit { max_inline: 0x10000, ..most },
            QpInit { max_send_sge: 0x100, ..most },
            QpInit { max_recv_sge: 0x100, ..most },
        ] {
            assert!(!Caps::can_hold(&more), "{more:?}");
        }
    }
}
