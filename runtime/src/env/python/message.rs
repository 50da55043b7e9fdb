//! The packets between this process and a simulator's, in native byte order; `rrun_worker.py`
//! documents the format.
//!
//! Received packets come from a process that may be broken. Every length and code is checked, and a
//! packet that does not fit is refused.

use serde::Deserialize;
use serde_json::Value;

use crate::env::{Feedback, NextEpisode};

/// The kind of a command: reset or step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Starts an episode.
    Reset,
    /// Takes one step.
    Step,
}

/// A command to one copy. The action, if any, is in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEntry {
    /// Index of the copy within the process.
    pub local: u16,
    /// The kind of the command.
    pub op: CommandKind,
    /// True if images are needed.
    pub render: bool,
    /// The episode of a reset, or the one that is offered with a step.
    pub episode: Option<NextEpisode>,
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Index of the copy within the process.
    pub local: u16,
    /// The kind of the command.
    pub op: CommandKind,
    /// True if the success rule holds.
    pub success: bool,
    /// `terminated` as gymnasium defines it.
    pub terminated: bool,
    /// `truncated` as gymnasium defines it, or the step limit.
    pub truncated: bool,
    /// True if images were written.
    pub rendered: bool,
    /// True if the action had a value outside the environment's range.
    pub out_of_bounds: bool,
    /// Reward of the step.
    pub reward: f32,
    /// The text of the reply.
    pub told: Told,
}

/// The text of a reply: JSON, or empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Told {
    /// The task instruction, if it has changed.
    #[serde(default)]
    pub language: Option<String>,
    /// Feedback about the last action and the available actions.
    #[serde(default)]
    pub feedback: Option<Feedback>,
    /// The reason why the environment's values are invalid; the episode is over.
    #[serde(default)]
    pub wrong: Option<String>,
}

/// A packet from the child.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet {
    /// The stage of the start, before `Hello`.
    Stage(String),
    /// The description of the environment.
    Hello(Value),
    /// The reason why the environment cannot be used.
    Refused(String),
    /// The shared memory is mapped.
    Ready,
    /// The replies to a batch of commands.
    Answers {
        /// Number of the batch.
        sequence: u32,
        /// One reply for each command, in order.
        replies: Vec<Reply>,
    },
    /// An exception or a malformed observation; the child exits.
    Error {
        /// Index of the copy within the process.
        local: u16,
        /// What the simulator did, as a clause: `raised ValueError: …`.
        reason: String,
    },
}

const HEAD: usize = 8;
const REPLY: usize = 12;
const SUCCESS: u8 = 1;
const TERMINATED: u8 = 2;
const TRUNCATED: u8 = 4;
const RENDERED: u8 = 8;
const OUT_OF_BOUNDS: u8 = 16;

/// The packet that tells the child to close its environments and exit.
pub const CLOSE: &[u8] = b"C";

/// Encodes a batch of commands as a packet.
pub fn work(sequence: u32, entries: &[CommandEntry]) -> Vec<u8> {
    let count = u16::try_from(entries.len())
        .expect("a process has at most 4096 copies, each with one command");
    let mut packet = vec![b'W', 0];
    packet.extend(count.to_ne_bytes());
    packet.extend(sequence.to_ne_bytes());
    for entry in entries {
        let kind = match (entry.op, entry.episode) {
            (CommandKind::Reset, _) => 0,
            (CommandKind::Step, None) => 1,
            (CommandKind::Step, Some(_)) => 2,
        };
        let (seed, episode) = entry
            .episode
            .map_or((0, 0), |next| (next.seed, next.episode));
        packet.extend(entry.local.to_ne_bytes());
        packet.extend([kind, u8::from(entry.render), 0, 0, 0, 0]);
        packet.extend(seed.to_ne_bytes());
        packet.extend(episode.to_ne_bytes());
    }
    packet
}

impl CommandEntry {
    /// Returns the reset that follows the reply without another command: the step has ended its
    /// episode, and another was offered.
    pub fn followed_by(&self, reply: &Reply) -> Option<Self> {
        let offered = self
            .episode
            .filter(|_| self.op == CommandKind::Step && (reply.terminated || reply.truncated))?;
        Some(Self {
            op: CommandKind::Reset,
            render: false,
            episode: Some(offered),
            ..*self
        })
    }
}

impl Packet {
    /// Parses a packet.
    ///
    /// # Errors
    /// Returns what is wrong with the packet, as a sentence.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let refuse = |reason| format!("a packet of {} bytes is malformed: {reason}", bytes.len());
        let (kind, rest) = bytes.split_first().ok_or_else(|| refuse("it is empty"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match kind {
            b'S' => Ok(Self::Stage(text(rest))),
            b'F' => Ok(Self::Refused(text(rest))),
            b'R' if rest.is_empty() => Ok(Self::Ready),
            b'H' => serde_json::from_slice(rest)
                .map(Self::Hello)
                .map_err(|_| refuse("its JSON is broken")),
            b'E' => {
                let (head, reason) = rest
                    .split_at_checked(3)
                    .ok_or_else(|| refuse("an error ends early"))?;
                Ok(Self::Error {
                    local: u16::from_ne_bytes([head[1], head[2]]),
                    reason: text(reason),
                })
            }
            b'A' => answers(bytes).map_err(refuse),
            _ => Err(refuse("its kind is not known")),
        }
    }
}

fn answers(bytes: &[u8]) -> Result<Packet, &'static str> {
    let (head, rest) = bytes
        .split_first_chunk::<HEAD>()
        .ok_or("its head ends early")?;
    let count = usize::from(u16::from_ne_bytes([head[2], head[3]]));
    let sequence = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    let (entries, mut texts) = rest
        .split_at_checked(count * REPLY)
        .ok_or("there are fewer replies than it says")?;
    let replies = entries
        .chunks_exact(REPLY)
        .map(|entry| reply(entry, &mut texts))
        .collect::<Result<_, _>>()?;
    if !texts.is_empty() {
        return Err("there is more text than the replies have");
    }
    Ok(Packet::Answers { sequence, replies })
}

fn reply(entry: &[u8], texts: &mut &[u8]) -> Result<Reply, &'static str> {
    let &[l0, l1, op, flags, r0, r1, r2, r3, t0, t1, t2, t3] = entry else {
        return Err("a reply ends early");
    };
    let op = match op {
        0 => CommandKind::Reset,
        1 => CommandKind::Step,
        _ => return Err("a reply is to neither reset nor step"),
    };
    if flags & !(SUCCESS | TERMINATED | TRUNCATED | RENDERED | OUT_OF_BOUNDS) != 0 {
        return Err("a reply has an unknown flag");
    }
    let length =
        usize::try_from(u32::from_ne_bytes([t0, t1, t2, t3])).map_err(|_| "a text is too long")?;
    let (text, rest) = texts.split_at_checked(length).ok_or("a text ends early")?;
    *texts = rest;
    let told = match text {
        [] => Told::default(),
        text => serde_json::from_slice(text).map_err(|_| "a text is not the JSON that is meant")?,
    };
    Ok(Reply {
        local: u16::from_ne_bytes([l0, l1]),
        op,
        success: flags & SUCCESS != 0,
        terminated: flags & TERMINATED != 0,
        truncated: flags & TRUNCATED != 0,
        rendered: flags & RENDERED != 0,
        out_of_bounds: flags & OUT_OF_BOUNDS != 0,
        reward: f32::from_ne_bytes([r0, r1, r2, r3]),
        told,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Packs replies as `rrun_worker.py` does.
    fn pack(sequence: u32, replies: &[Reply]) -> Vec<u8> {
        let mut packet = vec![b'A', 0];
        packet.extend((replies.len() as u16).to_ne_bytes());
        packet.extend(sequence.to_ne_bytes());
        for reply in replies {
            let ends = [reply.success, reply.terminated, reply.truncated];
            let flags = [&ends[..], &[reply.rendered, reply.out_of_bounds]].concat();
            let flags = flags
                .iter()
                .rev()
                .fold(0, |all, &flag| all << 1 | u8::from(flag));
            packet.extend(reply.local.to_ne_bytes());
            packet.extend([u8::from(reply.op == CommandKind::Step), flags]);
            packet.extend(reply.reward.to_ne_bytes());
            packet.extend((text(reply).len() as u32).to_ne_bytes());
        }
        packet.extend(replies.iter().flat_map(|reply| text(reply).into_bytes()));
        packet
    }

    fn text(reply: &Reply) -> String {
        let told = &reply.told;
        if *told == Told::default() {
            return String::new();
        }
        let feedback = told.feedback.as_ref();
        let feedback =
            feedback.map(|told| json!({"env_feedback": told.env_feedback, "task_progress": 0.5}));
        json!({"language": told.language, "feedback": feedback, "wrong": told.wrong}).to_string()
    }

    prop_compose! {
        fn any_reply()(local: u16, step: bool, flags: [bool; 5], reward in -1e9f32..1e9, words in prop::option::of("[a-zé\" ]{0,20}"), says: bool) -> Reply {
            let [success, terminated, truncated, rendered, out_of_bounds] = flags;
            let op = if step { CommandKind::Step } else { CommandKind::Reset };
            let feedback = says.then(|| Feedback { env_feedback: words.clone(), task_progress: Some(0.5), ..Feedback::default() });
            let told = Told { wrong: words.clone().filter(|_| reward < 0.0), language: words, feedback };
            Reply { local, op, success, terminated, truncated, rendered, out_of_bounds, reward, told }
        }
    }

    proptest! {
        #[test]
        fn no_change_to_an_answer_breaks_the_parser(
            replies in prop::collection::vec(any_reply(), 0..5),
            cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8,
        ) {
            let mut packet = pack(1, &replies);
            let place = at.index(packet.len());
            packet[place] = byte;
            packet.truncate(cut.index(packet.len()) + 1);
            let _ = Packet::parse(&packet);
        }

        #[test]
        fn answers_come_back_as_they_were_packed(sequence: u32, replies in prop::collection::vec(any_reply(), 0..5)) {
            prop_assert_eq!(Packet::parse(&pack(sequence, &replies)), Ok(Packet::Answers { sequence, replies }));
        }

        #[test]
        fn a_shorter_answer_is_refused(replies in prop::collection::vec(any_reply(), 1..5), cut in 1usize..12) {
            let packet = pack(1, &replies);
            prop_assert!(Packet::parse(&packet[..packet.len() - cut]).is_err());
        }
    }

    /// Returns the command of copy 1 for episode 4.
    fn entry(op: CommandKind) -> CommandEntry {
        let (seed, episode) = (3, 4);
        CommandEntry {
            local: 1,
            op,
            render: true,
            episode: Some(NextEpisode { seed, episode }),
        }
    }

    #[test]
    fn work_has_eight_bytes_and_then_24_an_entry() {
        let packet = work(5, &[entry(CommandKind::Reset)]);
        let native = cfg!(target_endian = "little");
        assert_eq!(packet.len(), 32);
        assert!(!native || packet[..16] == [b'W', 0, 1, 0, 5, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0]);
        assert!(!native || (packet[16], packet[24]) == (3, 4));
    }

    #[test]
    fn a_step_with_an_offer_is_followed_by_a_reset_if_it_ends_its_episode() {
        let step = entry(CommandKind::Step);
        assert_eq!(work(5, &[step])[10], 2, "the kind of the entry");
        let reply = |truncated| Reply {
            local: 1,
            op: CommandKind::Step,
            success: true,
            terminated: false,
            truncated,
            rendered: true,
            out_of_bounds: false,
            reward: 0.0,
            told: Told::default(),
        };
        let reset = CommandEntry {
            op: CommandKind::Reset,
            render: false,
            ..step
        };
        assert_eq!(step.followed_by(&reply(true)), Some(reset));
        assert_eq!(step.followed_by(&reply(false)), None);
        let alone = CommandEntry {
            episode: None,
            ..step
        };
        assert_eq!(alone.followed_by(&reply(true)), None);
        assert_eq!(reset.followed_by(&reply(true)), None);
    }

    #[test]
    fn what_is_no_packet_says_why() {
        let reason = |bytes: &[u8]| Packet::parse(bytes).unwrap_err();
        for (bytes, why) in [
            (&b""[..], "it is empty"),
            (b"Z", "its kind is not known"),
            (b"H{", "its JSON is broken"),
            (b"E\0", "an error ends early"),
        ] {
            let wanted = format!("a packet of {} bytes is malformed: {why}", bytes.len());
            assert_eq!(reason(bytes), wanted);
        }
    }
}
