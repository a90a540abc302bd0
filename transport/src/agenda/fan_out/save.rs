//! Waiting multicast packets in the record.

use super::{FanOut, FanOuts};
use crate::objects::device::Devices;
use crate::save::{RestoreError, Violation, record, to_qpn};
use vrdma_wire::roce::{MAX_FRAME, Packet};

impl FanOuts {
    /// Returns the record of the packets, and the device that is next.
    pub(crate) fn save(&self) -> (Vec<record::FanOut>, u32) {
        let FanOuts { waiting, turn } = self;
        let all = waiting.iter().flat_map(|(&device, queue)| {
            queue.iter().map(move |FanOut { served, frame }| record::FanOut {
                device,
                served: served.map(|qpn| qpn.number()),
                frame: frame.to_vec(),
            })
        });
        (all.collect(), *turn)
    }

    /// Restores waiting packets from a record.
    pub(crate) fn restore<R>(
        records: &[record::FanOut],
        turn: u32,
        devices: &Devices<R>,
    ) -> Result<FanOuts, RestoreError> {
        let mut all = FanOuts { turn, ..FanOuts::default() };
        let mut last = 0;
        for record in records {
            let refused = RestoreError::from(Violation::Group).of_device(record.device);
            let fan_out =
                FanOut::restore(record).map_err(|violation| RestoreError { violation, ..refused })?;
            if record.device < last
                || devices.get(record.device).is_none()
                || !all.push(record.device, fan_out)
            {
                return Err(refused);
            }
            last = record.device;
        }
        Ok(all)
    }
}

impl FanOut {
    fn restore(record: &record::FanOut) -> Result<FanOut, Violation> {
        let served = record.served.map(to_qpn).transpose()?;
        let parsed = Packet::parse(&record.frame).and_then(|parsed| parsed.check_icrc().map(|()| parsed));
        let packet = parsed.map_err(|_| Violation::Frame)?.packet;
        if record.frame.len() > MAX_FRAME {
            return Err(Violation::Frame);
        }
        if !packet.path.dst.is_multicast() {
            return Err(Violation::Group);
        }
        Ok(FanOut { served, frame: record.frame.as_slice().into() })
    }
}
