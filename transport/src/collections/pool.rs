//! Lists of pending requests, in nodes that all QPs of a device share.
//!
//! An empty list takes no node. Nodes come from chunks, and return to the free list of their chunk.
//! No operation allocates on its own, and a chunk without nodes in use can be freed.

const CHUNK: usize = 256;
const NONE: u32 = u32::MAX;
/// Most chunks without nodes in use that are not freed. A queue that fills and drains therefore
/// allocates nothing.
const SPARE: u32 = 64;

/// A queue of nodes of a [`Pool`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List::EMPTY
    }
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

    /// Returns the first node.
    #[inline]
    pub(crate) fn head(&self) -> Option<At> {
        if self.len == 0 { None } else { Some(At(self.head)) }
    }

    /// Returns the last node.
    #[inline]
    pub(crate) fn tail(&self) -> Option<At> {
        if self.len == 0 { None } else { Some(At(self.tail)) }
    }
}

/// A node in use. It gives access to nodes behind the first of a list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct At(u32);

struct Node<T> {
    value: T,
    next: u32,
}

/// The state of a chunk.
#[derive(Copy, Clone)]
struct Use {
    /// The first free node.
    free: u32,
    /// How many nodes are in use.
    live: u16,
    /// Whether the chunk is in [`Pool::partial`].
    listed: bool,
}

/// Nodes for [`List`]s.
pub(crate) struct Pool<T> {
    /// The chunks. A chunk that was freed is empty.
    chunks: Vec<Box<[Node<T>]>>,
    uses: Vec<Use>,
    /// The chunk that nodes are taken from.
    current: usize,
    /// Chunks except the current one that may have free nodes.
    partial: Vec<u32>,
    /// Chunks that were freed.
    vacant: Vec<u32>,
    /// Chunks without a node in use.
    unused: u32,
    live: u32,
}

impl<T: Copy + Default> Pool<T> {
    /// Size of a node in bytes.
    pub(crate) const NODE: u64 = size_of::<Node<T>>() as u64;

    pub(crate) fn new() -> Self {
        let (chunks, uses, partial, vacant) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Pool { chunks, uses, current: 0, partial, vacant, unused: 0, live: 0 }
    }

    /// Returns the number of nodes in use.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, value: T) {
        self.push_with(list, |place| *place = value);
    }

    /// Appends a value that `make` writes in place, over an arbitrary old value.
    #[inline]
    pub(crate) fn push_with(&mut self, list: &mut List, make: impl FnOnce(&mut T)) {
        let at = self.take_node();
        let node = self.node_mut(at);
        make(&mut node.value);
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
        self.pop_with(list, |value| *value)
    }

    /// Removes the first value, and returns the part of it that `part` selects.
    #[inline]
    pub(crate) fn pop_with<U>(&mut self, list: &mut List, part: impl FnOnce(&T) -> U) -> Option<U> {
        if list.len == 0 {
            return None;
        }
        let at = list.head;
        let node = self.node_mut(at);
        let value = part(&node.value);
        list.head = node.next;
        list.len -= 1;
        self.give_node(at);
        if list.len == 0 {
            *list = List::EMPTY;
        }
        Some(value)
    }

    /// Moves all nodes of `other` to the end of `list`.
    pub(crate) fn append(&mut self, list: &mut List, other: &mut List) {
        if list.len == 0 {
            *list = *other;
        } else if other.len != 0 {
            self.node_mut(list.tail).next = other.head;
            list.tail = other.tail;
            list.len += other.len;
        }
        *other = List::EMPTY;
    }

    /// Moves the first node of a list to the end of another. Returns false if there is none.
    #[inline]
    pub(crate) fn move_first(&mut self, from: &mut List, to: &mut List) -> bool {
        if from.len == 0 {
            return false;
        }
        let at = from.head;
        from.head = core::mem::replace(&mut self.node_mut(at).next, NONE);
        from.len -= 1;
        if from.len == 0 {
            *from = List::EMPTY;
        }
        if to.len == 0 {
            to.head = at;
        } else {
            self.node_mut(to.tail).next = at;
        }
        to.tail = at;
        to.len += 1;
        true
    }

    /// Returns the value of a node in use.
    #[inline]
    pub(crate) fn get(&self, at: At) -> &T {
        &self.node(at.0).value
    }

    /// Returns the value of a node in use, to be changed.
    pub(crate) fn get_mut(&mut self, at: At) -> &mut T {
        &mut self.node_mut(at.0).value
    }

    /// Returns the node behind a node in use.
    #[inline]
    pub(crate) fn after(&self, at: At) -> Option<At> {
        let next = self.node(at.0).next;
        if next == NONE { None } else { Some(At(next)) }
    }

    /// Returns how many nodes of a list are before this one, or the length of the list if `at` is
    /// `None`.
    pub(crate) fn position(&self, list: &List, at: Option<At>) -> u32 {
        let mut next = list.head();
        let mut position = 0;
        while next != at {
            next = self.after(next.expect("a node in use is of its list"));
            position += 1;
        }
        position
    }

    /// Returns the node with `position` nodes before it; `None` beyond the last.
    pub(crate) fn at_position(&self, list: &List, position: u32) -> Option<At> {
        (0..position).try_fold(list.head()?, |at, _| self.after(at))
    }

    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = &T> {
        let mut at = list.head;
        (0..list.len).map(move |_| {
            let node = self.node(at);
            at = node.next;
            &node.value
        })
    }

    /// Frees all memory if no node is in use.
    pub(crate) fn trim(&mut self) {
        if self.live == 0 && self.chunks.len() > 1 {
            *self = Pool::new();
        }
    }

    #[inline]
    fn take_node(&mut self) -> u32 {
        let at = match self.uses.get(self.current) {
            Some(chunk) if chunk.free != NONE => chunk.free,
            _ => self.next_chunk(),
        };
        let next = self.node(at).next;
        let chunk = &mut self.uses[self.current];
        chunk.free = next;
        if chunk.live == 0 {
            self.unused -= 1;
        }
        chunk.live += 1;
        self.live += 1;
        at
    }

    /// Returns a node to its chunk.
    #[inline]
    fn give_node(&mut self, at: u32) {
        let index = at as usize / CHUNK;
        let chunk = &mut self.uses[index];
        let next = core::mem::replace(&mut chunk.free, at);
        chunk.live -= 1;
        let (is_unused, is_listed) = (chunk.live == 0, chunk.listed);
        self.node_mut(at).next = next;
        self.live -= 1;
        if !is_listed && index != self.current {
            self.uses[index].listed = true;
            self.partial.push(index as u32);
        }
        if is_unused {
            self.now_unused(index);
        }
    }

    /// Counts a chunk without nodes in use, and frees its memory if there are more than [`SPARE`].
    #[inline]
    fn now_unused(&mut self, index: usize) {
        self.unused += 1;
        if self.unused > SPARE && index != self.current {
            self.unused -= 1;
            self.chunks[index] = Box::default();
            self.uses[index].free = NONE;
            self.vacant.push(index as u32);
        }
    }

    /// Makes another chunk with a free node the current one, and returns that node.
    #[cold]
    fn next_chunk(&mut self) -> u32 {
        while let Some(index) = self.partial.pop() {
            let chunk = &mut self.uses[index as usize];
            chunk.listed = false;
            if chunk.free != NONE {
                self.current = index as usize;
                return chunk.free;
            }
        }
        let index = self.vacant.pop().map_or(self.chunks.len(), |index| index as usize);
        let first = (index * CHUNK) as u32;
        let node = |i: usize| Node {
            value: T::default(),
            next: if i + 1 == CHUNK { NONE } else { first + i as u32 + 1 },
        };
        let nodes = (0..CHUNK).map(node).collect();
        if index == self.chunks.len() {
            self.chunks.push(nodes);
            self.uses.push(Use { free: first, live: 0, listed: false });
        } else {
            self.chunks[index] = nodes;
            self.uses[index].free = first;
        }
        self.unused += 1;
        self.current = index;
        first
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
        fn lists_are_queues(ops in proptest::collection::vec((0usize..3, 0usize..10), 0..2000)) {
            let mut pool = Pool::<u32>::new();
            let mut lists = [List::EMPTY; 3];
            let mut models: [VecDeque<u32>; 3] = Default::default();
            for (turn, (which, op)) in ops.into_iter().enumerate() {
                match op {
                    0..=3 => {
                        pool.push(&mut lists[which], turn as u32);
                        models[which].push_back(turn as u32);
                    }
                    4..=7 => prop_assert_eq!(pool.pop(&mut lists[which]), models[which].pop_front()),
                    8 => {
                        let other = (which + 1) % 3;
                        let (mut from, mut to) = (lists[which], lists[other]);
                        let first = models[which].pop_front();
                        prop_assert_eq!(pool.move_first(&mut from, &mut to), first.is_some());
                        models[other].extend(first);
                        (lists[which], lists[other]) = (from, to);
                    }
                    _ => {
                        let other = (which + 1) % 3;
                        let mut taken = std::mem::replace(&mut lists[other], List::EMPTY);
                        pool.append(&mut lists[which], &mut taken);
                        let mut taken = std::mem::take(&mut models[other]);
                        models[which].append(&mut taken);
                    }
                }
                prop_assert_eq!(pool.front(&lists[which]), models[which].front());
                prop_assert!(pool.iter(&lists[which]).eq(models[which].iter()));
            }
            prop_assert_eq!(pool.len() as usize, models.iter().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(pool.uses.iter().map(|chunk| usize::from(chunk.live)).sum::<usize>(), pool.len() as usize);
        }
    }

    /// Returns how many chunks have memory.
    fn chunks<T>(pool: &Pool<T>) -> usize {
        pool.chunks.iter().filter(|chunk| !chunk.is_empty()).count()
    }

    #[test]
    fn one_node_in_use_keeps_no_other_chunk() {
        const CHUNKS: u32 = 100;
        let mut pool = Pool::<u32>::new();
        for round in 0..3 {
            let (mut long, mut short) = (List::EMPTY, List::EMPTY);
            for i in 0..CHUNKS * CHUNK as u32 {
                pool.push(if i == CHUNKS / 2 * CHUNK as u32 { &mut short } else { &mut long }, i);
            }
            assert_eq!(chunks(&pool), CHUNKS as usize, "{round}");
            while pool.pop(&mut long).is_some() {}
            assert!(chunks(&pool) <= SPARE as usize + 2, "{round}: {}", chunks(&pool));
            assert_eq!(pool.pop(&mut short), Some(CHUNKS / 2 * CHUNK as u32));
            assert_eq!((pool.len(), pool.chunks.len() <= CHUNKS as usize), (0, true));
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
