//! The bodies of requests to a simulator and of its answers, in native byte order; `rrun_worker.py`
//! documents the format.
//!
//! Answers come from a process that may be broken. Every length and code is checked.

use serde::Deserialize;

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

const REPLY: usize = 12;
const SUCCESS: u8 = 1;
const TERMINATED: u8 = 2;
const TRUNCATED: u8 = 4;
const RENDERED: u8 = 8;
const OUT_OF_BOUNDS: u8 = 16;

/// Encodes a batch of commands.
pub fn work(entries: &[CommandEntry]) -> Vec<u8> {
    let mut packet = Vec::new();
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

/// Parses the replies to a batch of commands.
///
/// # Errors
/// Returns what is wrong with the body.
pub fn replies(count: u16, body: &[u8]) -> Result<Vec<Reply>, &'static str> {
    let (entries, mut texts) = body
        .split_at_checked(usize::from(count) * REPLY)
        .ok_or("there are fewer replies than it says")?;
    let replies = entries
        .chunks_exact(REPLY)
        .map(|entry| reply(entry, &mut texts))
        .collect::<Result<_, _>>()?;
    match texts {
        [] => Ok(replies),
        _ => Err("there is more text than the replies have"),
    }
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
    fn pack(all: &[Reply]) -> Vec<u8> {
        let mut packet = Vec::new();
        let replies = all;
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
            all in prop::collection::vec(any_reply(), 0..5), count: u16,
            cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8,
        ) {
            let mut packet = pack(&all);
            packet.push(0);
            let place = at.index(packet.len());
            packet[place] = byte;
            packet.truncate(cut.index(packet.len()) + 1);
            let _ = replies(count, &packet);
            let _ = replies(all.len() as u16, &packet);
        }

        #[test]
        fn answers_come_back_as_they_were_packed(all in prop::collection::vec(any_reply(), 0..5)) {
            prop_assert_eq!(replies(all.len() as u16, &pack(&all)), Ok(all));
        }

        #[test]
        fn a_shorter_answer_is_refused(all in prop::collection::vec(any_reply(), 1..5), cut in 1usize..12) {
            let packet = pack(&all);
            prop_assert!(replies(all.len() as u16, &packet[..packet.len() - cut]).is_err());
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
    fn a_command_has_24_bytes() {
        let packet = work(&[entry(CommandKind::Reset)]);
        let native = cfg!(target_endian = "little");
        assert_eq!(packet.len(), 24);
        assert!(!native || packet[..8] == [1, 0, 0, 1, 0, 0, 0, 0]);
        assert!(!native || (packet[8], packet[16]) == (3, 4));
    }

    #[test]
    fn a_step_with_an_offer_is_followed_by_a_reset_if_it_ends_its_episode() {
        let step = entry(CommandKind::Step);
        assert_eq!(work(&[step])[2], 2, "the kind of the entry");
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
}
