//! Lists of pending requests, in nodes that all QPs of a device share.
//!
//! An empty list takes no node. Nodes come from chunks, go to a free list and back: nothing is allocated per operation.

const CHUNK: usize = 256;
const NONE: u32 = u32::MAX;

/// A queue of nodes of some [`Pool`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first node.
    #[inline]
    pub(crate) fn head(&self) -> Option<At> {
        if self.len == 0 { None } else { Some(At(self.head)) }
    }

    /// Its last node.
    #[inline]
    pub(crate) fn tail(&self) -> Option<At> {
        if self.len == 0 { None } else { Some(At(self.tail)) }
    }
}

/// A node in use: to look at what is behind the first of a list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct At(u32);

struct Node<T> {
    value: T,
    next: u32,
}

/// Nodes for [`List`]s.
pub(crate) struct Pool<T> {
    chunks: Vec<Box<[Node<T>]>>,
    free: u32,
    live: u32,
}

impl<T: Copy + Default> Pool<T> {
    /// Bytes that a node takes.
    pub(crate) const NODE: u64 = size_of::<Node<T>>() as u64;

    pub(crate) fn new() -> Self {
        Pool { chunks: Vec::new(), free: NONE, live: 0 }
    }

    /// Nodes in use.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, value: T) {
        let at = self.take_node();
        let node = self.node_mut(at);
        node.value = value;
        node.next = NONE;
        if list.len == 0 {
            list.head = at;
        } else {
            self.node_mut(list.tail).next = at;
        }
        list.tail = at;
        list.len += 1;
    }

    #[inline]
    pub(crate) fn front(&self, list: &List) -> Option<&T> {
        if list.len == 0 { None } else { Some(&self.node(list.head).value) }
    }

    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<T> {
        if list.len == 0 {
            return None;
        }
        let at = list.head;
        let free = self.free;
        let node = self.node_mut(at);
        let value = node.value;
        list.head = node.next;
        list.len -= 1;
        node.next = free;
        self.free = at;
        self.live -= 1;
        if list.len == 0 {
            *list = List::EMPTY;
        }
        Some(value)
    }

    /// What a node in use holds.
    #[inline]
    pub(crate) fn get(&self, at: At) -> &T {
        &self.node(at.0).value
    }

    /// The node behind one in use.
    #[inline]
    pub(crate) fn after(&self, at: At) -> Option<At> {
        let next = self.node(at.0).next;
        if next == NONE { None } else { Some(At(next)) }
    }

    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = &T> {
        let mut at = list.head;
        (0..list.len).map(move |_| {
            let node = self.node(at);
            at = node.next;
            &node.value
        })
    }

    /// Gives memory back if nothing is in use.
    pub(crate) fn trim(&mut self) {
        if self.live == 0 && self.chunks.len() > 1 {
            *self = Pool::new();
        }
    }

    #[inline]
    fn take_node(&mut self) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let at = self.free;
        self.free = self.node(at).next;
        self.live += 1;
        at
    }

    #[cold]
    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let node = |i: usize| Node {
            value: T::default(),
            next: if i + 1 == CHUNK { NONE } else { first + i as u32 + 1 },
        };
        self.chunks.push((0..CHUNK).map(node).collect());
        self.free = first;
    }

    #[inline]
    fn node(&self, at: u32) -> &Node<T> {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline]
    fn node_mut(&mut self, at: u32) -> &mut Node<T> {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn lists_are_queues(ops in proptest::collection::vec((0usize..3, any::<bool>()), 0..2000)) {
            let mut pool = Pool::<u32>::new();
            let mut lists = [List::EMPTY; 3];
            let mut models: [VecDeque<u32>; 3] = Default::default();
            for (turn, (which, push)) in ops.into_iter().enumerate() {
                if push {
                    pool.push(&mut lists[which], turn as u32);
                    models[which].push_back(turn as u32);
                } else {
                    prop_assert_eq!(pool.pop(&mut lists[which]), models[which].pop_front());
                }
                prop_assert_eq!(pool.front(&lists[which]), models[which].front());
                prop_assert!(pool.iter(&lists[which]).eq(models[which].iter()));
            }
            prop_assert_eq!(pool.len() as usize, models.iter().map(VecDeque::len).sum::<usize>());
        }
    }

    #[test]
    fn memory_is_reused_and_given_back() {
        let mut pool = Pool::<u64>::new();
        let mut list = List::EMPTY;
        for round in 0..5 {
            for i in 0..1000 {
                pool.push(&mut list, i);
            }
            assert_eq!(pool.chunks.len(), 4, "{round}");
            while pool.pop(&mut list).is_some() {}
        }
        pool.trim();
        assert!(pool.chunks.is_empty());
        pool.push(&mut list, 1);
        assert_eq!(pool.front(&list), Some(&1));
    }
}
