//! What the screen shows: the last look at the daemon, and what was chosen by keys.

use crate::sheet::{Cell, Sheet};
use crate::sheets::{self, milliseconds, number, traffic, word};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use vrdma_admin::daemon::DaemonInfo;
use vrdma_admin::guest::Guest;
use vrdma_admin::port::Port;
use vrdma_admin::qp::Qp;
use vrdma_admin::worker::Worker;

/// A look at the daemon.
#[derive(Clone, Debug)]
pub struct Look {
    /// When it was taken.
    pub at: Instant,
    /// The daemon.
    pub daemon: DaemonInfo,
    /// All guests.
    pub guests: Vec<Guest>,
    /// All counters.
    pub stats: Map<String, Value>,
    /// All workers.
    pub workers: Vec<Worker>,
    /// All ports.
    pub ports: Vec<Port>,
    /// The queue pairs of the chosen guest, if they are shown.
    pub qps: Vec<Qp>,
}

/// A table of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Guests.
    Guests,
    /// Queue pairs of the chosen guest.
    Qps,
    /// Workers.
    Workers,
    /// Ports.
    Ports,
}

/// All pages, in the order of their keys.
pub const PAGES: [(Page, &str); 4] = [
    (Page::Guests, "Guests"),
    (Page::Qps, "Queue pairs"),
    (Page::Workers, "Workers"),
    (Page::Ports, "Ports"),
];

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Show this page.
    Show(Page),
    /// Show the next page.
    Next,
    /// Show the page before.
    Previous,
    /// Sort by the next column.
    Sort,
    /// Sort the other way round.
    Reverse,
    /// Choose the row below.
    Down,
    /// Choose the row above.
    Up,
}

/// What the screen shows.
#[derive(Debug)]
pub struct State {
    /// The page.
    pub page: Page,
    /// The column by which each page is sorted, and whether the greatest is first.
    sorting: [(usize, bool); PAGES.len()],
    /// The chosen row of each page. That of guests follows `guest`.
    chosen: [usize; PAGES.len()],
    /// The chosen guest, whose queue pairs are shown.
    pub guest: Option<String>,
    before: Option<Look>,
    now: Option<Look>,
    /// Why the last look failed.
    pub trouble: Option<String>,
}

impl State {
    /// Begins with the guests, before the first look.
    pub fn new() -> State {
        State {
            page: Page::Guests,
            sorting: [(0, false); PAGES.len()],
            chosen: [0; PAGES.len()],
            guest: None,
            before: None,
            now: None,
            trouble: None,
        }
    }

    /// Takes the next look at the daemon.
    pub fn saw(&mut self, look: Look) {
        // Rates need two looks at one daemon.
        let is_same = self.now.as_ref().is_some_and(|now| now.daemon.pid == look.daemon.pid);
        self.before = self.now.take().filter(|_| is_same);
        self.now = Some(look);
        self.trouble = None;
        self.follow();
    }

    /// Chooses the row of the chosen guest. If that is gone, the guest of the first row is chosen.
    fn follow(&mut self) {
        let rows = self.table_of(Page::Guests).rows;
        let name = |row: &[Cell]| row[0].shown().to_owned();
        let at = rows.iter().position(|row| Some(name(row)) == self.guest).unwrap_or(0);
        self.chosen[Page::Guests as usize] = at;
        self.guest = rows.get(at).map(|row| name(row));
    }

    /// Returns the daemon, once there was a look.
    pub fn daemon(&self) -> Option<&DaemonInfo> {
        self.now.as_ref().map(|now| &now.daemon)
    }

    /// Fulfils a wish.
    pub fn wish(&mut self, wish: Wish) {
        let at = self.page as usize;
        let columns = self.table().columns.len().max(1);
        match wish {
            Wish::Show(page) => self.page = page,
            Wish::Next => self.page = PAGES[(at + 1) % PAGES.len()].0,
            Wish::Previous => self.page = PAGES[(at + PAGES.len() - 1) % PAGES.len()].0,
            Wish::Sort => self.sorting[at].0 = (self.sorting[at].0 + 1) % columns,
            Wish::Reverse => self.sorting[at].1 = !self.sorting[at].1,
            Wish::Down => self.choose(self.chosen() + 1),
            Wish::Up => self.choose(self.chosen().saturating_sub(1)),
        }
        self.follow();
    }

    fn choose(&mut self, row: usize) {
        let table = self.table();
        let row = row.min(table.rows.len().saturating_sub(1));
        self.chosen[self.page as usize] = row;
        if self.page == Page::Guests
            && let Some(row) = table.rows.get(row)
        {
            self.guest = Some(row[0].shown().to_owned());
        }
    }

    /// Returns the chosen row.
    pub fn chosen(&self) -> usize {
        self.chosen[self.page as usize]
    }

    /// Returns the column by which the page is sorted, and whether the greatest is first.
    pub fn sorting(&self) -> (usize, bool) {
        self.sorting[self.page as usize]
    }

    /// Returns the table of the page, sorted.
    pub fn table(&self) -> Sheet {
        self.table_of(self.page)
    }

    fn table_of(&self, page: Page) -> Sheet {
        let Some(now) = &self.now else { return Sheet::default() };
        let rates = Rates { before: self.before.as_ref(), now };
        let mut table = match page {
            Page::Guests => rates.guests(),
            Page::Qps => sheets::qps(&now.qps),
            Page::Workers => rates.workers(),
            Page::Ports => rates.ports(),
        };
        let (column, is_descending) = self.sorting[page as usize];
        table.sort(column, is_descending);
        table
    }
}

/// Two looks, for what happened between them.
struct Rates<'a> {
    before: Option<&'a Look>,
    now: &'a Look,
}

impl Rates<'_> {
    /// Returns how much a number grew in a second.
    fn rate(&self, of: impl Fn(&Look) -> Option<u64>) -> Option<f64> {
        let before = self.before?;
        let time = self.now.at.saturating_duration_since(before.at).max(Duration::from_millis(1));
        let (old, new) = (of(before)?, of(self.now)?);
        Some(new.saturating_sub(old) as f64 / time.as_secs_f64())
    }

    fn guests(&self) -> Sheet {
        let columns = [
            "GUEST",
            "WORKER",
            "RDMA",
            "ETHERNET",
            "QPS",
            "PENDING",
            "REQUESTS/S",
            "OUT B/S",
            "IN B/S",
            "ERRORS/S",
        ];
        let mut sheet = Sheet::new(&columns);
        let listed = sheets::guests(&self.now.guests);
        for (guest, row) in self.now.guests.iter().zip(listed.rows) {
            let rate = |group: &str, counters: &[&str]| {
                let of = |look: &Look| {
                    let found = counters_of(look, &guest.name)?.get(group)?.as_object();
                    counters.iter().map(|counter| number(found, counter)).sum::<Option<u64>>()
                };
                self.rate(of).map_or(Cell::Unknown, Cell::rate)
            };
            let [_, _, worker, rdma, ethernet, qps, _, pending]: [Cell; 8] =
                row.try_into().expect("these are the columns of the list of guests");
            sheet.add([
                Cell::text(&guest.name),
                worker,
                rdma,
                ethernet,
                qps,
                pending,
                rate("device", &["requests"]),
                rate("transport", &["bytes_out", "bytes_served"]),
                rate("transport", &["bytes_in", "bytes_read"]),
                rate("transport", &["errors"]),
            ]);
        }
        sheet
    }

    fn workers(&self) -> Sheet {
        let columns = [
            "WORKER",
            "CPU",
            "BUSY",
            "IDLE",
            "ASLEEP",
            "LONGEST MS",
            "TURNS/S",
            "SLEEPS/S",
            "REQUESTS/S",
            "GUESTS",
        ];
        let mut sheet = Sheet::new(&columns);
        for worker in &self.now.workers {
            let find = |look: &Look| look.workers.iter().find(|each| each.number == worker.number).cloned();
            let rate = |of: fn(&Worker) -> Option<u64>| self.rate(|look| of(&find(look)?));
            let turns = rate(|worker| Some(worker.busy_turns? + worker.idle_turns?));
            // The times are in microseconds.
            let percent = |time: Option<f64>| time.map_or(Cell::Unknown, |time| Cell::percent(time / 1e6));
            let shown = |rate: Option<f64>| rate.map_or(Cell::Unknown, Cell::rate);
            let guests = worker.guests.join(",");
            sheet.add([
                Cell::count(worker.number),
                Cell::maybe(worker.processor),
                percent(rate(|worker| worker.busy)),
                percent(rate(|worker| worker.idle)),
                percent(rate(|worker| worker.asleep)),
                milliseconds(worker.longest_turn),
                shown(turns),
                shown(rate(|worker| worker.sleeps)),
                shown(rate(|worker| worker.requests)),
                Cell::text(if worker.stuck { format!("STUCK: {guests}") } else { guests }),
            ]);
        }
        sheet
    }

    fn ports(&self) -> Sheet {
        let columns = ["PORT", "KIND", "STATE", "FRAMES IN/S", "FRAMES OUT/S", "IN B/S", "OUT B/S"];
        let mut sheet = Sheet::new(&columns);
        for port in &self.now.ports {
            let rate = |at: usize| {
                let of = |look: &Look| traffic(look.ports.iter().find(|each| each.name == port.name)?)[at];
                self.rate(of).map_or(Cell::Unknown, Cell::rate)
            };
            sheet.add([
                Cell::text(&port.name),
                Cell::text(word(port.kind)),
                Cell::text(if port.up { "up" } else { "down" }),
                rate(0),
                rate(1),
                rate(2),
                rate(3),
            ]);
        }
        sheet
    }
}

/// Returns the counters of a guest.
fn counters_of<'a>(look: &'a Look, guest: &str) -> Option<&'a Map<String, Value>> {
    let guests = look.stats.get("guests")?.as_array()?;
    guests.iter().find(|each| each.get("name").and_then(Value::as_str) == Some(guest))?.as_object()
}
