//! The bodies of requests to a simulator and of its answers, in native byte order; `rrun_worker.py`
//! documents the format.
//!
//! Answers come from a process that may be broken. Every length and code is checked.

use serde::Deserialize;

use crate::env::Feedback;

/// An episode that a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeId {
    /// Seed of all randomness in the episode.
    pub seed: u64,
    /// Number of the episode in the job.
    pub episode: u64,
}

/// A command that a copy was sent. The action, if any, is in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the copy within the process.
    pub local: u16,
    /// The place for images, if they are needed.
    pub slot: Option<u8>,
    /// The episode of a reset; `None` for a step.
    pub episode: Option<EpisodeId>,
}

impl Entry {
    /// Returns whether the command is a step, not a reset.
    pub fn is_step(&self) -> bool {
        self.episode.is_none()
    }

    /// Appends the entry to the body of a request.
    pub fn put(&self, body: &mut Vec<u8>) {
        let kind = u8::from(self.is_step());
        let (seed, episode) = self.episode.map_or((0, 0), |it| (it.seed, it.episode));
        body.extend(self.local.to_ne_bytes());
        let slot = self.slot.map_or(0, |slot| slot + 1);
        body.extend([kind, slot, 0, 0, 0, 0]);
        body.extend(seed.to_ne_bytes());
        body.extend(episode.to_ne_bytes());
    }

    /// Returns whether a reply can be that to this command.
    pub fn fits(&self, reply: &Reply) -> bool {
        let is_rendered = self.slot.is_some() == reply.rendered || reply.told.wrong.is_some();
        (self.local, self.is_step()) == (reply.local, reply.is_step) && is_rendered
    }
}

/// The reply to a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Index of the copy within the process.
    pub local: u16,
    /// Whether the command was a step, or a reset.
    pub is_step: bool,
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
#[serde(default)]
pub struct Told {
    /// The task instruction, if it has changed.
    pub language: Option<String>,
    /// Feedback about the last action and the available actions.
    pub feedback: Option<Feedback>,
    /// The reason why the environment's values are invalid; the episode is over.
    pub wrong: Option<String>,
}

/// Bytes of a reply without its text.
const REPLY: usize = 12;

/// Parses the replies to a batch of commands.
///
/// # Errors
/// Returns what is wrong with the body.
pub fn replies(count: u16, body: &[u8]) -> Result<Vec<Reply>, &'static str> {
    let (entries, mut texts) = body
        .split_at_checked(usize::from(count) * REPLY)
        .ok_or("there are fewer replies than it says")?;
    let (entries, _) = entries.as_chunks();
    let replies = entries.iter().map(|entry| reply(entry, &mut texts));
    let replies = replies.collect::<Result<_, _>>()?;
    match texts {
        [] => Ok(replies),
        _ => Err("there is more text than the replies have"),
    }
}

fn reply(entry: &[u8; REPLY], texts: &mut &[u8]) -> Result<Reply, &'static str> {
    let &[l0, l1, kind, flags, r0, r1, r2, r3, t0, t1, t2, t3] = entry;
    if kind > 1 {
        return Err("a reply is to neither reset nor step");
    }
    if flags >= 32 {
        return Err("a reply has an unknown flag");
    }
    let length = u32::from_ne_bytes([t0, t1, t2, t3]) as usize;
    let (text, rest) = texts.split_at_checked(length).ok_or("a text ends early")?;
    *texts = rest;
    let told = match text {
        [] => Told::default(),
        text => serde_json::from_slice(text).map_err(|_| "a text is not the JSON that is meant")?,
    };
    Ok(Reply {
        local: u16::from_ne_bytes([l0, l1]),
        is_step: kind == 1,
        success: flags & 1 != 0,
        terminated: flags & 2 != 0,
        truncated: flags & 4 != 0,
        rendered: flags & 8 != 0,
        out_of_bounds: flags & 16 != 0,
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
            packet.extend([u8::from(reply.is_step), flags]);
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
        fn any_reply()(local: u16, is_step: bool, flags: [bool; 5], reward in -1e9f32..1e9, words in prop::option::of("[a-zé\" ]{0,20}"), says: bool) -> Reply {
            let [success, terminated, truncated, rendered, out_of_bounds] = flags;
            let feedback = says.then(|| Feedback { env_feedback: words.clone(), task_progress: Some(0.5), ..Feedback::default() });
            let told = Told { wrong: words.clone().filter(|_| reward < 0.0), language: words, feedback };
            Reply { local, is_step, success, terminated, truncated, rendered, out_of_bounds, reward, told }
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

    #[test]
    fn a_command_has_24_bytes() {
        let packed = |episode| {
            let entry = Entry {
                local: 1,
                slot: Some(0),
                episode,
            };
            let mut body = Vec::new();
            entry.put(&mut body);
            body
        };
        let (seed, episode) = (3, 4);
        let packet = packed(Some(EpisodeId { seed, episode }));
        let native = cfg!(target_endian = "little");
        assert_eq!(packet.len(), 24);
        assert!(!native || packet[..8] == [1, 0, 0, 1, 0, 0, 0, 0]);
        assert!(!native || (packet[8], packet[16]) == (3, 4));
        assert_eq!(packed(None)[2], 1, "the kind of a step");
    }
}
