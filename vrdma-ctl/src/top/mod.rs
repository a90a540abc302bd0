//! `top`: a screen that refreshes itself.

mod screen;
mod state;
#[cfg(test)]
mod tests;

use crate::connection::Connection;
use crate::show::all_qps;
use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_usize;
use signal_hook::low_level::emulate_default_handler;
use state::{Look, PAGES, Page, State, Wish};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vrdma_admin::daemon::{GetDaemon, GetStats};
use vrdma_admin::guest::ListGuests;
use vrdma_admin::port::ListPorts;
use vrdma_admin::worker::ListWorkers;
use vrdma_admin::{Client, ClientError};

/// How often to look whether a signal has come.
const SIGNAL_LOOK: Duration = Duration::from_millis(100);

/// Shows the screen until a key or a signal ends it.
///
/// A signal ends the program, as it does by default, when the terminal is as it was before.
///
/// # Errors
/// The daemon cannot be reached at the beginning, or there is no terminal.
pub fn run(connection: &Connection, interval: Duration) -> Result<()> {
    let mut state = State::new();
    let mut client = connection.to_observe()?;
    state.saw(look(&mut client, &state)?);
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        register_usize(number, signal.clone(), number as usize)?;
    }
    let mut terminal = ratatui::try_init()?;
    let result = refresh(&mut terminal, connection, client, &mut state, (interval, &signal));
    ratatui::restore();
    match signal.load(Ordering::Relaxed) {
        0 => result,
        number => Ok(emulate_default_handler(number as i32)?),
    }
}

fn refresh(
    terminal: &mut DefaultTerminal,
    connection: &Connection,
    client: Client,
    state: &mut State,
    (interval, signal): (Duration, &AtomicUsize),
) -> Result<()> {
    let (mut client, mut due) = (Some(client), Instant::now() + interval);
    loop {
        terminal.draw(|frame| screen::draw(frame, state))?;
        let (mut looks, mut has_event) = (false, false);
        while !looks && !has_event {
            if signal.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            has_event = event::poll(left.min(SIGNAL_LOOK))?;
            looks = !has_event && left <= SIGNAL_LOOK;
        }
        if has_event && let Event::Key(key) = event::read()? {
            match meaning(key) {
                Meaning::Quit => return Ok(()),
                Meaning::Wish(wish) => {
                    state.wish(wish);
                    // The queue pairs of the chosen guest are not there yet.
                    looks = state.page == Page::Qps;
                }
                Meaning::Nothing => {}
            }
        }
        if looks {
            due = Instant::now() + interval;
            // A daemon that was started again is there again.
            let seen = match client.take().map_or_else(|| connection.to_observe(), Ok) {
                Ok(mut connected) => look(&mut connected, state).inspect(|_| client = Some(connected)),
                Err(error) => Err(error),
            };
            match seen {
                Ok(look) => state.saw(look),
                Err(error) => state.trouble = Some(format!("{:#}", anyhow::Error::from(error))),
            }
        }
    }
}

/// Asks the daemon for everything that the screen shows.
fn look(client: &mut Client, state: &State) -> Result<Look, ClientError> {
    let guests = client.call(&ListGuests {})?.guests;
    let guest = state.guest.as_ref().filter(|name| guests.iter().any(|guest| guest.name == **name));
    let qps = match guest.filter(|_| state.page == Page::Qps) {
        Some(guest) => all_qps(client, guest)?,
        None => Vec::new(),
    };
    Ok(Look {
        daemon: client.call(&GetDaemon {})?,
        guests,
        stats: client.call(&GetStats::default())?.stats,
        workers: client.call(&ListWorkers {})?.workers,
        ports: client.call(&ListPorts {})?.ports,
        qps,
        at: Instant::now(),
    })
}

/// What a key means.
#[derive(Debug, PartialEq)]
enum Meaning {
    Quit,
    Wish(Wish),
    Nothing,
}

fn meaning(key: KeyEvent) -> Meaning {
    if key.kind == KeyEventKind::Release {
        return Meaning::Nothing;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Meaning::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Meaning::Quit,
        KeyCode::Char(digit @ '1'..='4') => {
            Meaning::Wish(Wish::Show(PAGES[usize::from(digit as u8 - b'1')].0))
        }
        KeyCode::Tab | KeyCode::Right => Meaning::Wish(Wish::Next),
        KeyCode::BackTab | KeyCode::Left => Meaning::Wish(Wish::Previous),
        KeyCode::Char('s') => Meaning::Wish(Wish::Sort),
        KeyCode::Char('r') => Meaning::Wish(Wish::Reverse),
        KeyCode::Down | KeyCode::Char('j') => Meaning::Wish(Wish::Down),
        KeyCode::Up | KeyCode::Char('k') => Meaning::Wish(Wish::Up),
        _ => Meaning::Nothing,
    }
}
