//! Draws the screen.

use super::state::{PAGES, Page, State};
use crate::sheet::{Cell, Sheet};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Tabs};

/// The keys, in the last line.
const KEYS: &str = "1-4, Tab: page   Up, Down: choose   s: sort by the next column   r: reverse   q: quit";

/// Draws what there is to see.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, pages, body, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(heading(state)), head);
    let titles = PAGES.iter().zip(1..).map(|((_, name), key)| format!("{key} {name}"));
    let bold = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Tabs::new(titles).select(state.page as usize).highlight_style(bold), pages);
    let table = state.table();
    let mut chosen = TableState::new().with_selected((!table.rows.is_empty()).then_some(state.chosen()));
    frame.render_stateful_widget(widget(&table, state.sorting()), body, &mut chosen);
    frame.render_widget(Paragraph::new(KEYS), foot);
}

fn heading(state: &State) -> Line<'static> {
    if let Some(trouble) = &state.trouble {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        return Line::from(Span::styled(trouble.clone(), bold));
    }
    let Some(daemon) = state.daemon() else { return Line::from("asking the daemon") };
    let uplink = match (&daemon.uplink, &daemon.link) {
        (Some(uplink), Some(link)) => format!("uplink {uplink} {}", if link.up { "up" } else { "DOWN" }),
        (Some(uplink), None) => format!("uplink {uplink}"),
        (None, _) => "no uplink".to_owned(),
    };
    let of = state.guest.as_ref().filter(|_| state.page == Page::Qps);
    let of = of.map_or(String::new(), |guest| format!("   queue pairs of {guest}"));
    let drains = if daemon.draining { ", DRAINING" } else { "" };
    let (version, pid, uptime, guests) = (&daemon.version, daemon.pid, daemon.uptime, daemon.guests);
    Line::from(format!(
        "vrdma-backend {version}, process {pid}, for {uptime} s, {guests} guests, {uplink}{drains}{of}"
    ))
}

fn widget(table: &Sheet, (sorted_by, is_descending): (usize, bool)) -> Table<'static> {
    let heads = table.columns.iter().enumerate().map(|(at, name)| {
        let mark = if is_descending { "v" } else { "^" };
        let text = if at == sorted_by { format!("{name}{mark}") } else { (*name).to_owned() };
        Text::from(text).alignment(side(table.is_numeric(at)))
    });
    let rows = table.rows.iter().map(|row| {
        let cell = |(at, cell): (usize, &Cell)| {
            Text::from(cell.shown().to_owned()).alignment(side(table.is_numeric(at)))
        };
        Row::new(row.iter().enumerate().map(cell))
    });
    let widths = table.widths().into_iter().map(|width| Constraint::Length(width as u16 + 1));
    Table::new(rows, widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn side(is_number: bool) -> Alignment {
    if is_number { Alignment::Right } else { Alignment::Left }
}
