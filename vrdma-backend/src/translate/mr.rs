//! Memory windows, regions for fast registration, and what changes of regions.

use super::access::access;
use vrdma_abi::control::{ReregMrReq, Status, mw_type as abi, rereg};
use vrdma_transport::{Access, MAX_PAGES, MwType};

/// The type of a memory window.
///
/// # Errors
/// `INVALID`: there is no such type.
pub fn mw_type(number: u32) -> Result<MwType, Status> {
    match number {
        abi::TYPE_1 => Ok(MwType::Type1),
        abi::TYPE_2B => Ok(MwType::Type2B),
        _ => Err(Status::INVALID),
    }
}

/// Most pages of a fast registration.
///
/// # Errors
/// `INVALID`: none, or more than the device has.
pub fn max_pages(number: u32) -> Result<u32, Status> {
    if (1..=MAX_PAGES).contains(&number) { Ok(number) } else { Err(Status::INVALID) }
}

/// What a region is to be changed to, its memory apart.
#[derive(Debug)]
pub struct Changes {
    /// Its PD.
    pub pdn: Option<u32>,
    /// Its rights.
    pub access: Option<Access>,
    /// Whether its memory, too.
    pub memory: bool,
}

/// What a region is to be changed to.
///
/// # Errors
/// `INVALID`: nothing or an unknown flag, a field of what does not change, or rights that [no region](access) may have.
pub fn changes(req: &ReregMrReq) -> Result<Changes, Status> {
    let flags = req.flags.get();
    let has = |flag| flags & flag != 0;
    let unused = !has(rereg::PD) && req.pdn.get() != 0
        || !has(rereg::ACCESS) && req.access.get() != 0
        || !has(rereg::TRANSLATION) && (req.iova.get(), req.length.get()) != (0, 0);
    if flags == 0 || flags & !rereg::ALL != 0 || unused {
        return Err(Status::INVALID);
    }
    let pdn = has(rereg::PD).then(|| req.pdn.get());
    let access = has(rereg::ACCESS).then(|| access(req.access.get())).transpose()?;
    Ok(Changes { pdn, access, memory: has(rereg::TRANSLATION) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_flag_names_is_zero() {
        let all = ReregMrReq {
            lkey: 1.into(),
            flags: rereg::ALL.into(),
            pdn: 2.into(),
            access: 5.into(),
            iova: 3.into(),
            length: 4.into(),
        };
        let found = changes(&all).unwrap();
        assert_eq!((found.pdn, found.access, found.memory), (Some(2), Some(Access(5)), true));
        for (flag, rest) in [
            (rereg::PD, ReregMrReq { pdn: 0.into(), ..all }),
            (rereg::ACCESS, ReregMrReq { access: 0.into(), ..all }),
            (rereg::TRANSLATION, ReregMrReq { iova: 0.into(), length: 0.into(), ..all }),
        ] {
            let flags = rereg::ALL & !flag;
            assert!(changes(&ReregMrReq { flags: flags.into(), ..rest }).is_ok());
            assert_eq!(changes(&ReregMrReq { flags: flags.into(), ..all }).unwrap_err(), Status::INVALID);
        }
        for flags in [0, rereg::ALL + 1] {
            assert_eq!(changes(&ReregMrReq { flags: flags.into(), ..all }).unwrap_err(), Status::INVALID);
        }
    }
}
