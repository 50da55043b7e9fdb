//! The newest state of every fragment, with a number that grows with each change. Pure.
//!
//! ```text
//! head 7 │ now 9 │ success 4 │ …      a browser that has seen 5 gets head and now, in that order
//! ```
//! A browser that is slow misses the states between, never the newest one. One that connects again
//! names the last event that it has seen; if that is of another server, it gets everything.

use bytes::Bytes;
use report::page::live::Fragment;
use serde_json::json;

/// The newest state of a page.
#[derive(Debug)]
pub(super) struct Board {
    /// What tells the numbers of this server from those of another one.
    epoch: String,
    version: u64,
    parts: Vec<BoardPart>,
    /// The newest pictures by environment, as the page asks for them.
    pictures: Option<BoardPart>,
}

#[derive(Debug)]
struct BoardPart {
    fragment: Fragment,
    version: u64,
    /// The event that brings it to a browser.
    event: Bytes,
}

impl Board {
    pub(super) fn new(epoch: String) -> Self {
        Self {
            epoch,
            version: 0,
            parts: Vec::new(),
            pictures: None,
        }
    }

    /// Takes the state of some fragments; those that are new come last. Returns whether anything has
    /// changed.
    pub(super) fn put(&mut self, fragments: Vec<Fragment>) -> bool {
        let before = self.version;
        for fragment in fragments {
            let known = self
                .parts
                .iter()
                .position(|part| part.fragment.id == fragment.id);
            if known.is_some_and(|at| self.parts[at].fragment == fragment) {
                continue;
            }
            let data = json!({"id": fragment.id, "html": fragment.html});
            let part = self.part(fragment, "part", &data.to_string());
            match known {
                Some(at) => self.parts[at] = part,
                None => self.parts.push(part),
            }
        }
        self.version > before
    }

    /// Takes the versions of the pictures, as JSON. Returns whether they have changed.
    pub(super) fn put_pictures(&mut self, versions: String) -> bool {
        let known = self.pictures.as_ref();
        if known.is_some_and(|known| known.fragment.html == versions) {
            return false;
        }
        let fragment = Fragment {
            id: "pictures",
            short: "",
            name: "",
            html: versions.clone(),
        };
        self.pictures = Some(self.part(fragment, "pictures", &versions));
        true
    }

    /// Returns the oldest change that one who has seen `seen` does not know, with its number.
    pub(super) fn next(&self, seen: u64) -> Option<(u64, Bytes)> {
        let parts = self.parts.iter().chain(&self.pictures);
        let unknown = parts.filter(|part| part.version > seen);
        let first = unknown.min_by_key(|part| part.version)?;
        Some((first.version, first.event.clone()))
    }

    /// Returns the number of an event that a browser names; 0 if it is not of this server.
    pub(super) fn seen(&self, event: &str) -> u64 {
        let number = event
            .strip_prefix(&self.epoch)
            .and_then(|rest| rest.strip_prefix('-'));
        let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        if number <= self.version { number } else { 0 }
    }

    /// Returns the name of the newest event.
    pub(super) fn newest(&self) -> String {
        format!("{}-{}", self.epoch, self.version)
    }

    /// Returns all fragments, in the order of the page.
    pub(super) fn fragments(&self) -> Vec<Fragment> {
        self.parts
            .iter()
            .map(|part| part.fragment.clone())
            .collect()
    }

    fn part(&mut self, fragment: Fragment, kind: &str, data: &str) -> BoardPart {
        self.version += 1;
        let (epoch, version) = (&self.epoch, self.version);
        let event = format!("id: {epoch}-{version}\nevent: {kind}\ndata: {data}\n\n");
        BoardPart {
            fragment,
            version,
            event: event.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(id: &'static str, html: &str) -> Fragment {
        Fragment {
            id,
            short: "",
            name: "",
            html: html.to_owned(),
        }
    }

    fn board() -> Board {
        let mut board = Board::new("e".to_owned());
        assert!(board.put(vec![
            fragment("a", "1"),
            fragment("b", "1"),
            fragment("c", "1")
        ]));
        board
    }

    /// Returns all events for one who has seen `seen`.
    fn events(board: &Board, mut seen: u64) -> Vec<String> {
        let mut events = Vec::new();
        while let Some((number, event)) = board.next(seen) {
            seen = number;
            events.push(String::from_utf8(event.to_vec()).unwrap());
        }
        events
    }

    #[test]
    fn who_is_new_gets_everything_in_order() {
        let board = board();
        assert_eq!(events(&board, 0).len(), 3);
        assert_eq!(
            events(&board, 0)[1],
            "id: e-2\nevent: part\ndata: {\"id\":\"b\",\"html\":\"1\"}\n\n"
        );
        assert_eq!(board.newest(), "e-3");
    }

    #[test]
    fn who_is_slow_gets_the_newest_state_alone() {
        let mut board = board();
        for text in ["2", "3", "4"] {
            assert!(board.put(vec![fragment("b", text)]));
        }
        let missed = events(&board, 3);
        assert_eq!(missed.len(), 1, "{missed:?}");
        assert!(missed[0].contains("\"html\":\"4\""));
    }

    #[test]
    fn what_has_not_changed_is_no_event() {
        let mut board = board();
        assert!(!board.put(vec![fragment("a", "1"), fragment("b", "1")]));
        assert!(events(&board, 3).is_empty());
        assert!(board.put_pictures("{\"0/1\":\"7\"}".to_owned()));
        assert!(!board.put_pictures("{\"0/1\":\"7\"}".to_owned()));
        assert_eq!(
            events(&board, 3),
            ["id: e-4\nevent: pictures\ndata: {\"0/1\":\"7\"}\n\n"]
        );
    }

    #[test]
    fn who_connects_again_names_what_it_has_seen() {
        let board = board();
        assert_eq!(board.seen("e-2"), 2);
        for foreign in ["f-2", "e-", "e-x", "e-99", "", "e2", "-2"] {
            assert_eq!(board.seen(foreign), 0, "{foreign}");
        }
    }

    #[test]
    fn a_line_end_in_a_fragment_does_not_end_its_event() {
        let mut board = Board::new("e".to_owned());
        board.put(vec![fragment("a", "x\n\ndata: y\r\n")]);
        let events = events(&board, 0);
        assert_eq!(events[0].lines().count(), 4, "{events:?}");
    }
}
