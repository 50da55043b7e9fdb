//! The packets for a tracker's process.

use jobs::tracking::Tracker;
use serde_json::{Map, Value, json};

use crate::eval::monitor::tracking::mailbox::Message;
use crate::eval::monitor::tracking::point::Point;
use crate::eval::monitor::tracking::tracked_run::RunIntroduction;

/// Maximum number of values in a packet: names have up to 240 bytes, and a packet up to 208 KiB.
const MOST_VALUES: usize = 500;

/// Returns what the worker is made with.
pub fn start(run: &RunIntroduction, tracker: Tracker) -> Value {
    json!({
        "tracker": tracker.name(),
        "project": run.project,
        "name": run.name,
        "is_named": run.is_named,
        "id": run.id,
        "config": run.config,
    })
}

/// Returns the packets of a message; a point of many values needs several.
pub fn of(message: &Message, is_uploaded: bool) -> Vec<Vec<u8>> {
    match message {
        Message::Point(Point {
            step,
            unix_s,
            values,
        }) => {
            let packet = |values: &[(String, f64)]| {
                let values: Map<String, Value> = values
                    .iter()
                    .map(|(name, value)| (name.clone(), json!(value)))
                    .collect();
                json!({"kind": "point", "step": step, "unix_s": unix_s, "values": values})
                    .to_string()
                    .into_bytes()
            };
            values.chunks(MOST_VALUES).map(packet).collect()
        }
        Message::Ending(ending) => {
            let mut packet = json!(ending);
            packet["kind"] = "ending".into();
            packet["is_uploaded"] = is_uploaded.into();
            vec![packet.to_string().into_bytes()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a socket takes, in `rrun_host.py`.
    const LARGEST_PACKET: usize = 1 << 18;

    #[test]
    fn a_point_of_many_tasks_fits_into_packets() {
        let values =
            (0..1200).map(|task| (format!("tasks/{}{task}", "x".repeat(200)), 0.123456789));
        let point = Message::Point(Point {
            step: 3,
            unix_s: 1.5,
            values: values.collect(),
        });
        let packets = of(&point, false);
        assert_eq!(packets.len(), 3);
        assert!(
            packets
                .iter()
                .all(|packet| packet.len() < LARGEST_PACKET * 3 / 4)
        );
        let last: Value = serde_json::from_slice(&packets[2]).unwrap();
        assert_eq!((&last["step"], &last["kind"]), (&json!(3), &json!("point")));
        assert_eq!(last["values"].as_object().unwrap().len(), 200);
    }
}
