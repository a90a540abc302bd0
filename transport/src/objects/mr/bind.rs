//! Memory windows: how they are bound to a part of a region, and unbound (IBTA 10.6.7).

use super::{KEYS, Key, Kind, Mrs};
use crate::base::id::PdId;
use crate::base::memory::Access;
use crate::save::Violation;
use crate::verbs::window::{Bind, Binder, Bound, MwType, QpLife, Window};
use vrdma_wire::num::{Qpn, Rkey};

/// A bind was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct BindError;

impl<R> Mrs<R> {
    /// Adds a window that is not bound, and returns its key. Returns `None` if there is no room.
    pub(crate) fn add_window(
        &mut self,
        next_tag: impl FnOnce(u16) -> u16,
        pd: PdId,
        mw_type: MwType,
    ) -> Option<Rkey> {
        let key = self.keys.insert(next_tag, |key| Key::window(key, pd, mw_type))?;
        self.windows += 1;
        Some(Rkey(key))
    }

    /// Adds a window that already has its key, behind all others. It is not bound.
    pub(crate) fn put_window(&mut self, key: u32, pd: PdId, mw_type: MwType) -> Result<(), Violation> {
        self.keys.put(Key::window(key, pd, mw_type), false)?;
        self.windows += 1;
        Ok(())
    }

    /// Removes a window, whatever the tag of this key. Returns its PD, or `None` if there is no
    /// such window.
    pub(crate) fn remove_window(&mut self, key: Rkey) -> Option<PdId> {
        let Key { key, pd, kind: Kind::Window(_), .. } = *self.keys.at(KEYS.index(key.0))? else {
            return None;
        };
        self.unbind(key);
        self.keys.remove(key);
        self.windows -= 1;
        Some(pd)
    }

    /// Binds a window, or binds one of type 1 again (IBTA 10.6.7.2, 11.2.8.10; C10-72 to C10-75).
    pub(crate) fn bind(&mut self, bind: &Bind, by: Binder<'_>) -> Result<(), BindError> {
        let Bind { rkey, new_rkey, lkey, access, addr, length } = *bind;
        let mw_type = self.bindable(bind, by.pd).ok_or(BindError)?;
        let new_rkey = Rkey(KEYS.with_tag(rkey.0, new_rkey.0));
        if length == 0 {
            self.unbind(rkey.0);
            self.set_key(rkey, new_rkey);
            return Ok(());
        }
        let (found, offset) = self.find(lkey.0, by.pd, Access::MW_BIND, addr, length).ok_or(BindError)?;
        let writes = access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let Kind::Region(_) = found.kind else { return Err(BindError) };
        if writes && !found.access.contains(Access::LOCAL_WRITE) {
            return Err(BindError);
        }
        self.unbind(rkey.0);
        let qp = match mw_type {
            MwType::Type1 => None,
            MwType::Type2B => Some((by.qpn, self.life_of(by.life))),
        };
        let window = self.set_key(rkey, new_rkey);
        let zero_based = access.contains(Access::ZERO_BASED);
        window.iova = if zero_based { 0 } else { addr };
        window.length = length;
        window.access = access;
        window.kind = Kind::Window(Window { mw_type, bound: Some(Bound { region: lkey.0, offset, qp }) });
        self.region_windows(lkey.0, |windows| windows + 1);
        Ok(())
    }

    /// Returns the type of the window that a bind names, if the window allows the bind.
    fn bindable(&self, bind: &Bind, pd: PdId) -> Option<MwType> {
        let Bind { rkey, access, length, .. } = *bind;
        let found = self.keys.get(rkey.0)?;
        let Kind::Window(Window { mw_type, bound }) = &found.kind else { return None };
        let right = match mw_type {
            // o10-36.2.2
            MwType::Type1 => !access.contains(Access::ZERO_BASED),
            // o10-37.2.30, o10-37.2.40
            MwType::Type2B => bound.is_none() && length > 0,
        };
        (right && found.pd == pd && Access::WINDOW.contains(access)).then_some(*mw_type)
    }

    /// Invalidates the windows of a QP with this life, which is gone.
    ///
    /// [`Mrs::unbind_some`] then releases the regions that they were bound to.
    pub(crate) fn qp_gone(&mut self, life: QpLife) {
        if life != QpLife::NONE {
            self.unbinding = 0..self.keys.indices();
        }
    }

    /// Whether windows of QPs that are gone may still be bound.
    pub(crate) fn is_unbinding(&self) -> bool {
        !self.unbinding.is_empty()
    }

    /// Unbinds further windows of QPs that are gone, at up to `left` indices.
    ///
    /// `life` returns the life of the QP with a number, if there is one.
    pub(crate) fn unbind_some(&mut self, left: &mut usize, life: impl Fn(Qpn) -> Option<QpLife>) {
        while *left > 0
            && let Some(index) = self.unbinding.next()
        {
            *left -= 1;
            let Some(&Key { key, kind: Kind::Window(Window { bound: Some(bound), .. }), .. }) =
                self.keys.at(index)
            else {
                continue;
            };
            if bound.qp.is_some_and(|(qpn, of)| life(qpn) != Some(of)) {
                self.unbind(key);
            }
        }
    }

    /// Returns the life of a QP that binds a window, and gives it one if it has none.
    fn life_of(&mut self, life: &mut QpLife) -> QpLife {
        if *life == QpLife::NONE {
            self.last_life = self.last_life.next();
            *life = self.last_life;
        }
        *life
    }

    /// Unbinds a window.
    pub(super) fn unbind(&mut self, key: u32) {
        let window = self.keys.get_mut(key).expect("it was looked up before");
        (window.access, window.iova, window.length) = (Access::NONE, 0, 0);
        let Kind::Window(Window { bound, .. }) = &mut window.kind else {
            unreachable!("only windows are bound")
        };
        if let Some(bound) = bound.take() {
            self.region_windows(bound.region, |windows| windows - 1);
        }
    }

    /// Gives a window another tag.
    fn set_key(&mut self, old: Rkey, new: Rkey) -> &mut Key<R> {
        match old == new {
            true => self.keys.get_mut(old.0).expect("it was looked up before"),
            false => self.keys.renumber(old.0, new.0, |window| window.key = new.0),
        }
    }

    /// Changes the number of windows that are bound to a region.
    fn region_windows(&mut self, region: u32, change: impl FnOnce(u32) -> u32) {
        match self.keys.get_mut(region).map(|found| &mut found.kind) {
            Some(Kind::Region(mr)) => mr.windows = change(mr.windows),
            _ => unreachable!("a region stays while windows are bound to it"),
        }
    }
}

impl<R> Key<R> {
    /// Makes the key of a window that is not bound.
    fn window(key: u32, pd: PdId, mw_type: MwType) -> Key<R> {
        let kind = Kind::Window(Window { mw_type, bound: None });
        Key { key, pd, access: Access::NONE, iova: 0, length: 0, kind }
    }
}

#[cfg(test)]
mod tests;
