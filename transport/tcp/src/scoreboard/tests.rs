//! Cases of a scoreboard, and its comparison with a simple model.

use super::*;
use crate::seq::FIRST;
use crate::tests::sim::Rng;

fn board(segments: u64) -> Scoreboard {
    let mut board = Scoreboard::new(FIRST);
    for n in 0..segments {
        board.push(100, Kind::Data, Instant(n));
    }
    board
}

fn range(from: u64, to: u64) -> Range {
    Range { start: FIRST + from, end: FIRST + to }
}

#[test]
fn what_is_sacked_or_lost_is_not_in_the_pipe() {
    let mut board = board(5);
    assert_eq!(board.sack(range(100, 300), |_| {}), 200);
    assert_eq!(board.sack(range(100, 300), |_| {}), 0);
    assert_eq!((board.pipe(), board.sacked_segments()), (300, 2));
    assert_eq!(board.mark_first_lost(), 100);
    assert_eq!(board.mark_first_lost(), 0);
    assert_eq!(board.pipe(), 200);
    let index = board.first_lost().unwrap();
    board.sent_again(index, Instant(9));
    assert_eq!((board.pipe(), board.first_lost()), (300, None));
    assert_eq!(board.fault(), None);
    let mut told = Vec::new();
    // The second and third segments were reported before.
    assert_eq!(board.acknowledge(FIRST + 450, |sent| told.push(sent.range)), 250);
    assert_eq!(told, [range(0, 100), range(300, 400)]);
    assert_eq!((board.outstanding(), board.pipe(), board.fault()), (50, 50, None));
}

#[test]
fn parts_of_segments_are_not_sacked() {
    let mut board = board(3);
    assert_eq!(board.sack(range(50, 250), |_| {}), 100);
    assert_eq!(board.sack(range(0, 99), |_| {}), 0);
    assert_eq!(board.last_missing(), Some(2));
    assert_eq!(board.fault(), None);
}

#[test]
fn a_segment_that_was_lost_and_is_sacked_is_there() {
    let mut board = board(3);
    assert_eq!(board.mark_lost(|_| true), 300);
    assert_eq!((board.pipe(), board.first_lost()), (0, Some(0)));
    board.sack(range(0, 100), |_| {});
    assert_eq!((board.pipe(), board.first_lost()), (0, Some(1)));
    assert_eq!(board.fault(), None);
    board.unmark_lost();
    assert_eq!((board.pipe(), board.any_lost()), (200, false));
    board.forget_sacks();
    assert_eq!((board.pipe(), board.fault()), (300, None));
}

#[test]
fn a_segment_is_split_where_the_path_ends() {
    let mut board = board(2);
    board.sack(range(100, 200), |_| {});
    board.mark_first_lost();
    board.split(0, 30);
    board.split(2, 60);
    let ranges: Vec<Range> = board.iter().map(|sent| sent.range).collect();
    assert_eq!(ranges, [range(0, 30), range(30, 100), range(100, 160), range(160, 200)]);
    assert_eq!(board.fault(), None);
}

/// A simple model of a scoreboard: a list that each step scans wholly.
#[derive(Default)]
struct Model(Vec<Sent>);

impl Model {
    fn acknowledge(&mut self, to: u64) -> (u64, Vec<Sent>) {
        let (mut fresh, mut told) = (0, Vec::new());
        for sent in &mut self.0 {
            let part = to.clamp(sent.range.start, sent.range.end) - sent.range.start;
            if !sent.sacked {
                fresh += part;
                told.extend((part > 0 && sent.range.end <= to).then_some(*sent));
            }
            sent.range.start += part;
        }
        self.0.retain(|sent| sent.range.start < sent.range.end);
        (fresh, told)
    }

    fn sack(&mut self, range: Range) -> (u64, Vec<Sent>) {
        let (mut fresh, mut told) = (0, Vec::new());
        for sent in self.0.iter_mut().filter(|sent| range.covers(sent.range) && !sent.sacked) {
            told.push(*sent);
            fresh += sent.range.end - sent.range.start;
            (sent.sacked, sent.lost) = (true, false);
        }
        (fresh, told)
    }

    fn sum(&self, of: impl Fn(&Sent) -> bool) -> u64 {
        self.0.iter().filter(|sent| of(sent)).map(|sent| sent.range.end - sent.range.start).sum()
    }

    /// Returns a number among the outstanding ones or close to them, often the beginning of a
    /// segment.
    fn number(&self, rng: &mut Rng) -> u64 {
        let (first, last) = (self.0.first().unwrap().range.start, self.0.last().unwrap().range.end);
        match rng.below(3) {
            0 => first + rng.below(last - first + 1),
            _ => self.0[rng.below(self.0.len() as u64) as usize].range.start,
        }
    }
}

/// Runs one step on both. Callbacks of the board see equal segments in equal state and order,
/// except that they may not have been marked yet.
fn step(board: &mut Scoreboard, model: &mut Model, rng: &mut Rng, now: Instant) {
    if model.0.is_empty() || rng.chance(300) {
        let length = 1 + rng.below(100);
        let range = board.push(length, Kind::Data, now);
        return model.0.push(Sent {
            range,
            at: now,
            kind: Kind::Data,
            sacked: false,
            lost: false,
            again: false,
        });
    }
    let mut told = Vec::new();
    match rng.below(20) {
        0..4 => {
            let to = if rng.chance(20) {
                board.nxt()
            } else {
                model.number(rng).min(board.una() + rng.below(300))
            };
            let fresh = board.acknowledge(to, |sent| told.push(*sent));
            assert_eq!((fresh, told), model.acknowledge(to));
        }
        4..14 => {
            let (a, b) = (model.number(rng), model.number(rng));
            let range = Range { start: a.min(b), end: a.max(b) };
            let fresh = board.sack(range, |sent| told.push(*sent));
            assert_eq!((fresh, told), model.sack(range));
        }
        14 => {
            let limit = model.number(rng);
            let marked = board.mark_lost(|sent| sent.range.start < limit);
            let is_new = |sent: &Sent| !sent.sacked && !sent.lost && sent.range.start < limit;
            assert_eq!(marked, model.sum(is_new));
            model.0.iter_mut().filter(|sent| is_new(sent)).for_each(|sent| sent.lost = true);
        }
        15..18 => {
            let index = board.first_lost();
            assert_eq!(index, model.0.iter().position(|sent| sent.lost));
            let Some(index) = index else { return };
            let length = model.0[index].range.end - model.0[index].range.start;
            if length > 1 && rng.chance(300) {
                let most = 1 + rng.below(length - 1);
                board.split(index, most);
                let mut rest = model.0[index];
                rest.range.start += most;
                model.0[index].range.end = rest.range.start;
                model.0.insert(index + 1, rest);
            }
            let sent = board.sent_again(index, now);
            (model.0[index].lost, model.0[index].again, model.0[index].at) = (false, true, now);
            assert_eq!(sent, model.0[index]);
        }
        18 if rng.chance(100) => {
            board.forget_sacks();
            model.0.iter_mut().for_each(|sent| sent.sacked = false);
        }
        18 => {
            board.unmark_lost();
            model.0.iter_mut().for_each(|sent| sent.lost = false);
        }
        _ => {
            // The board is saved and restored.
            board.runs = Vec::new();
            board.find_runs();
        }
    }
}

#[test]
fn a_scoreboard_is_what_a_plain_list_is() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let (mut board, mut model) = (Scoreboard::new(FIRST), Model::default());
        for at in 0..400 {
            step(&mut board, &mut model, &mut rng, Instant(at));
            assert_eq!(board.fault(), None, "seed {seed}, step {at}");
            assert!(board.iter().eq(&model.0), "seed {seed}, step {at}");
            let all = model.sum(|_| true);
            assert_eq!(board.outstanding(), all);
            assert_eq!(board.sacked(), model.sum(|sent| sent.sacked));
            assert_eq!(board.pipe(), model.sum(|sent| !sent.sacked && !sent.lost));
            assert_eq!(board.sacked_segments() as usize, model.0.iter().filter(|sent| sent.sacked).count());
            assert_eq!(board.last_missing(), model.0.iter().rposition(|sent| !sent.sacked));
            let runs = std::mem::take(&mut board.runs);
            board.find_runs();
            assert_eq!(board.runs, runs, "seed {seed}, step {at}");
        }
    }
}

#[test]
fn what_was_sacked_before_is_not_looked_at_again() {
    let mut board = board(1000);
    (0..500).for_each(|n| _ = board.sack(range(200 * n, 200 * n + 100), |_| {}));
    assert_eq!((board.runs.len(), board.sacked_segments()), (500, 500));
    let mut told = 0;
    assert_eq!(board.sack(range(0, 100_000), |_| told += 1), 50_000);
    assert_eq!((told, &board.runs[..]), (500, &[range(0, 100_000)][..]));
    board.acknowledge(FIRST + 150, |_| {});
    assert_eq!(board.runs, [range(150, 100_000)]);
    board.forget_sacks();
    assert_eq!((board.runs.len(), board.sacked()), (0, 0));
}
