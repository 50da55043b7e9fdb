//! A minimal ZeroMQ client: one REQ socket that sends the bytes of libzmq 4.3.5.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use rig::wait::DEADLINE;
use wire::{Array, Dialect, Key, Value, read, write};

pub struct Client {
    stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        stream.write_all(&hello())?;
        let mut greeting = [0; 64];
        stream.read_exact(&mut greeting)?;
        assert_eq!(
            (greeting[0], greeting[9], greeting[10], &greeting[12..16]),
            (0xff, 0x7f, 3, &b"NULL"[..])
        );
        let mut ready = [0; 2];
        stream.read_exact(&mut ready)?;
        let mut body = vec![0; usize::from(ready[1])];
        stream.read_exact(&mut body)?;
        assert_eq!(
            (ready[0], &body[..]),
            (4, &b"\x05READY\x0bSocket-Type\0\0\0\x03REP"[..])
        );
        Ok(Self { stream })
    }

    /// Sets the time limit for an answer, or for a part of it.
    pub fn wait_at_most(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
    }

    /// Sends raw bytes after the greeting.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let mut message = vec![1, 0, 2];
        message.extend((body.len() as u64).to_be_bytes());
        message.extend(body);
        self.stream.write_all(&message)
    }

    /// Returns the body of an answer, or an error if the server has closed the connection.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let (flags, delimiter) = self.frame()?;
        assert_eq!(
            (flags, delimiter.len()),
            (1, 0),
            "an answer begins with an empty frame"
        );
        let (flags, body) = self.frame()?;
        assert_eq!(flags & !2, 0, "an answer has one part");
        Ok(body)
    }

    fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut flags = [0];
        self.stream.read_exact(&mut flags)?;
        let length = if flags[0] & 2 > 0 {
            let mut length = [0; 8];
            self.stream.read_exact(&mut length)?;
            u64::from_be_bytes(length)
        } else {
            let mut length = [0];
            self.stream.read_exact(&mut length)?;
            u64::from(length[0])
        };
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body)?;
        Ok((flags[0], body))
    }

    pub fn ask(&mut self, body: &[u8]) -> Vec<u8> {
        self.send(body).unwrap();
        self.receive().unwrap()
    }

    pub fn ask_value(&mut self, request: &Value) -> Value {
        read(&Bytes::from(self.ask(&write(request, Dialect::Kind))))
            .unwrap()
            .value
    }
}

/// Returns greeting and READY of a REQ socket.
pub fn hello() -> Vec<u8> {
    let mut hello = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
    hello.resize(64, 0);
    hello.extend(b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0");
    hello
}

/// Asks for a sign of life, and checks the answer.
pub fn ping(client: &mut Client) {
    assert_eq!(
        client.ask(&file("ping.request.bin")),
        file("ping.response.bin")
    );
}

pub fn file(name: &str) -> Vec<u8> {
    std::fs::read(rig::fixture("gr00t/protocol").join(name)).unwrap()
}

/// Returns the value at a path like `data/observation`.
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let inside = |value: &'a Value, key| value.get(key).unwrap_or_else(|| panic!("no {path}"));
    path.split('/').fold(value, inside)
}

/// Returns `value` with the value at `path` replaced or added.
pub fn with(value: &Value, path: &str, new: Value) -> Value {
    let mut changed = value.clone();
    match path.split_once('/') {
        None => set(&mut changed, path, new),
        Some((first, rest)) => set(&mut changed, first, with(at(value, first), rest, new)),
    }
    changed
}

/// Replaces or adds a member of a map.
pub fn set(map: &mut Value, key: &str, new: Value) {
    let Value::Map(members) = map else {
        panic!("{map:?} is not a map")
    };
    members.retain(|(name, _)| !name.is(key));
    members.push((Key::from(key), new));
}

/// Returns the names and arrays of a part of an observation.
pub fn arrays(observation: &Value, part: &str) -> Vec<(String, Array)> {
    let Value::Map(members) = at(observation, part) else {
        panic!("{part} is not a map")
    };
    let pair = |(key, value): &(Key, Value)| (key.shown(), value.as_array().unwrap().clone());
    members.iter().map(pair).collect()
}

/// Returns the recorded request for actions with other `options`.
pub fn get_action(options: Value) -> Value {
    let recorded = read(&file("get_action.request.bin").into()).unwrap();
    with(&recorded.value, "data/options", options)
}

/// Returns options with a seed of the noise for each row.
pub fn noise_seeds(seeds: &[u64]) -> Value {
    let seeds: Vec<Value> = seeds.iter().map(|&seed| seed.into()).collect();
    Value::map([("noise_seeds", seeds.into())])
}

/// Returns a request whose noise and robot state depend on `seed`.
pub fn seeded(seed: u64) -> Value {
    let joints: Vec<f32> = (0..7)
        .map(|joint| (seed % 97) as f32 * 0.01 + joint as f32)
        .collect();
    with(
        &get_action(noise_seeds(&[seed])),
        "data/observation/state/joint_position",
        Array::of_f32(&[1, 1, 7], &joints).into(),
    )
}

/// Adds `token` to a request.
pub fn with_token(request: &Value, token: &str) -> Value {
    with(request, "api_token", token.into())
}

/// Returns the recorded request for `rows` robots with black pictures of this height and width, and
/// this instruction.
pub fn rows_of(rows: usize, [height, width]: [usize; 2], prompt: &str) -> Value {
    let mut request = get_action(Value::Nil);
    let observation = at(&request, "data/observation").clone();
    for (view, picture) in arrays(&observation, "video") {
        let shape = [rows, picture.shape()[1], height, width, 3];
        let pixels = vec![0; shape.iter().product()];
        let path = format!("data/observation/video/{view}");
        request = with(&request, &path, Array::of_u8(&shape, pixels.into()).into());
    }
    for (name, state) in arrays(&observation, "state") {
        let shape = [&[rows], &state.shape()[1..]].concat();
        // The recorded state for each, because a rotation of zeros is none.
        let bytes = state.data()[..state.data().len() / state.shape()[0]].repeat(rows);
        let states = Array::new(state.dtype().clone(), shape, bytes.into()).unwrap();
        let path = format!("data/observation/state/{name}");
        request = with(&request, &path, states.into());
    }
    let texts = vec![Value::from(vec![Value::from(prompt)]); rows];
    with(&request, INSTRUCTION, texts.into())
}

/// Sides of small pictures.
pub const SMALL: [usize; 2] = [8, 8];

/// The path of the instruction of a request.
pub const INSTRUCTION: &str = "data/observation/language/annotation.language.language_instruction";

/// Returns the largest difference of two answers, or infinity if their lengths differ.
pub fn apart(one: &[f32], other: &[f32]) -> f32 {
    if one.len() != other.len() {
        return f32::INFINITY;
    }
    let differences = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

/// Returns all numbers of an answer `[actions, info]`.
pub fn numbers(answer: &Value) -> Vec<f32> {
    let actions = answer
        .as_list()
        .unwrap_or_else(|| panic!("no actions: {answer:?}"));
    let Value::Map(keys) = &actions[0] else {
        panic!("{answer:?}")
    };
    keys.iter()
        .flat_map(|(_, value)| value.as_array().unwrap().to_f32())
        .collect()
}

pub fn error(answer: &Value) -> &str {
    answer
        .get("error")
        .and_then(Value::as_text)
        .unwrap_or_else(|| panic!("no error: {answer:?}"))
}
