//! Builds the requests of chat completions (`POST …/v1/chat/completions`) and parses the answers,
//! without input or output.
//!
//! Sources: OpenAI's API reference ("Create chat completion"), which vLLM, lmdeploy, SGLang and
//! llama.cpp's server implement; the schema is EmbodiedBench's (`generation_guide.py`,
//! `vlm_generation_guide`).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::env::Frame;
use crate::policy::agent::AgentSettings;

/// The JSON schema of an answer to pictures.
const SCHEMA: &str = include_str!("schema.json");

/// Maximum length of a server's reason in characters, because some servers answer with a web page.
const LONGEST_REASON: usize = 300;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ChatMessage {
    /// The role: `system`, `user` or `assistant`.
    pub(super) role: &'static str,
    /// The text of the message.
    pub(super) text: String,
}

/// A camera's picture as a PNG file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PngPicture {
    /// Name of the camera.
    pub(super) camera: String,
    /// The content of the file.
    pub(super) png: Vec<u8>,
}

impl PngPicture {
    /// Compresses a frame `[height, width, 3]`.
    pub(super) fn new(camera: &str, frame: &Frame) -> Result<Self, String> {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, frame.width, frame.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&frame.rgb)?;
            writer.finish()
        });
        written.map_err(|err| format!("the picture of camera `{camera}` is not a PNG: {err}"))?;
        let camera = camera.to_owned();
        Ok(Self { camera, png })
    }
}

/// Returns the body of a request, whose last message comes with the pictures. If `schema` is given,
/// the server must make the answer conform to it.
pub(super) fn body(
    settings: &AgentSettings,
    messages: &[ChatMessage],
    pictures: &[PngPicture],
    schema: Option<&Value>,
) -> Value {
    let message = |said: &ChatMessage| json!({"role": said.role, "content": said.text});
    let mut messages: Vec<Value> = messages.iter().map(message).collect();
    if let (Some(last), false) = (messages.last_mut(), pictures.is_empty()) {
        let text = |text: Value| json!({"type": "text", "text": text});
        let mut content = Vec::new();
        for PngPicture { camera, png } in pictures {
            if pictures.len() > 1 {
                content.push(text(json!(format!("Camera `{camera}`:"))));
            }
            let url = format!("data:image/png;base64,{}", STANDARD.encode(png));
            content.push(json!({"type": "image_url", "image_url": {"url": url}}));
        }
        content.push(text(last["content"].take()));
        last["content"] = Value::Array(content);
    }
    let (limit, tokens) = settings.max_tokens;
    let job = &settings.job;
    let mut body = Map::from_iter([
        ("model".to_owned(), json!(job.model)),
        ("messages".to_owned(), Value::Array(messages)),
        ("temperature".to_owned(), json!(job.temperature)),
        (limit.to_owned(), json!(tokens)),
    ]);
    if let Some(schema) = schema {
        let format = json!({"name": "embodied_planning", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": format});
        body.insert("response_format".to_owned(), format);
    }
    body.extend(job.extra_body.clone());
    Value::Object(body)
}

/// Returns the JSON schema of an answer; `sees` tells whether the model sees pictures.
pub(super) fn schema(sees: bool) -> Value {
    let mut schema: Value = serde_json::from_str(SCHEMA).expect("the tests read it");
    if !sees {
        if let Value::Object(properties) = &mut schema["properties"] {
            properties.shift_remove("visual_state_description");
        }
        if let Value::Array(required) = &mut schema["required"] {
            required.remove(0);
        }
    }
    schema
}

/// The answer of a server, and the effort it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completion {
    /// The text of the first choice.
    pub(super) text: String,
    /// Number of tokens in the request according to the server; 0 if it does not report it.
    pub(super) prompt_tokens: u64,
    /// Number of tokens in the answer.
    pub(super) completion_tokens: u64,
    /// Whether the answer was cut off at the maximum length.
    pub(super) is_cut: bool,
    /// Number of requests that failed before it.
    pub(super) retries: u64,
    /// Time from the first request to the answer, including waits and the rank's own queue.
    pub(super) took: Duration,
}

impl Completion {
    /// Parses the body of an answer with status 200.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(body).map_err(|err| format!("its answer is not JSON: {err}"))?;
        let choice = value.pointer("/choices/0");
        let choice = choice.ok_or("its answer has no `choices`")?;
        let text = match choice.pointer("/message/content") {
            Some(Value::String(text)) => text.clone(),
            // A refusal or a length of 0: the answer has no plan, which counts as a failure of the
            // model.
            Some(Value::Null) | None if choice.get("message").is_some() => String::new(),
            _ => return Err("its answer has no text in `choices[0].message.content`".to_owned()),
        };
        let tokens = |name: &str| value["usage"][name].as_u64().unwrap_or(0);
        Ok(Self {
            text,
            prompt_tokens: tokens("prompt_tokens"),
            completion_tokens: tokens("completion_tokens"),
            is_cut: choice["finish_reason"] == "length",
            ..Self::default()
        })
    }
}

/// Returns the reason for which a server refused, from its body: OpenAI's `error.message`,
/// FastAPI's `detail`, or the text itself.
pub(super) fn reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut said = ["/error/message", "/message", "/detail", "/error"].iter();
    let said = said.find_map(|path| value.pointer(path)?.as_str());
    let words: Vec<_> = said.unwrap_or(&text).split_whitespace().collect();
    words.join(" ").chars().take(LONGEST_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::agent::tests::settings;
    use crate::policy::tests::frame;

    fn asked(cameras: &[&str], schema: Option<&Value>) -> Value {
        let settings = settings(json!({"extra_body": {"top_p": 0.5}, "max_tokens": 7}));
        let message = ChatMessage {
            role: "user",
            text: "go".to_owned(),
        };
        let picture = |camera: &&str| PngPicture {
            camera: (*camera).to_owned(),
            png: vec![1],
        };
        let pictures: Vec<_> = cameras.iter().map(picture).collect();
        body(&settings, &[message], &pictures, schema)
    }

    #[test]
    fn a_body_has_what_every_server_knows() {
        let messages = json!([{"role": "user", "content": "go"}]);
        let wanted = json!({
            "model": "m", "messages": messages, "temperature": 0.0, "max_tokens": 7, "top_p": 0.5,
        });
        assert_eq!(asked(&[], None), wanted);
        let body = asked(&[], Some(&schema(true)));
        let schema = &body["response_format"]["json_schema"]["schema"];
        assert_eq!(schema["required"][3], "executable_plan");
    }

    #[test]
    fn pictures_come_before_the_words_and_several_are_named() {
        let content = |cameras: &[&str]| asked(cameras, None)["messages"][0]["content"].clone();
        let url = json!({"url": "data:image/png;base64,AQ=="});
        let image = json!({"type": "image_url", "image_url": url});
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(content(&["a"]), json!([image, text("go")]));
        let (a, b) = (text("Camera `a`:"), text("Camera `b`:"));
        let wanted = json!([a, image, b, image, text("go")]);
        assert_eq!(content(&["a", "b"]), wanted);
    }

    #[test]
    fn a_picture_comes_out_as_it_went_in() {
        let rgb: Vec<u8> = (0..2 * 3 * 3).collect();
        let front = Frame {
            height: 2,
            width: 3,
            rgb: rgb.clone().into(),
        };
        let picture = PngPicture::new("front", &front).unwrap();
        let png = std::io::Cursor::new(picture.png);
        let mut reader = png::Decoder::new(png).read_info().unwrap();
        let mut found = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut found).unwrap();
        assert_eq!((info.width, info.height, found), (3, 2, rgb));
    }

    #[test]
    fn bytes_that_are_no_picture_are_refused() {
        let mut frame = frame([2, 3], 0);
        frame.rgb = vec![0; 5].into();
        let refused = PngPicture::new("front", &frame).unwrap_err();
        assert!(refused.contains("camera `front`"));
    }

    #[test]
    fn without_pictures_nobody_is_asked_to_describe_them() {
        let blind = schema(false);
        assert_eq!(blind["properties"].as_object().unwrap().len(), 3);
        assert_eq!(blind["required"][0], "reasoning_and_reflection");
        assert!(schema(true)["properties"]["visual_state_description"].is_object());
    }

    #[test]
    fn an_answer_is_its_first_choice() {
        let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "length"}],
                          "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        let wanted = Completion {
            text: "x".to_owned(),
            prompt_tokens: 5,
            completion_tokens: 2,
            is_cut: true,
            ..Completion::default()
        };
        let read = |body: &Value| Completion::read(body.to_string().as_bytes()).unwrap();
        assert_eq!(read(&body), wanted);
        let silent = json!({"choices": [{"message": {"content": null}}]});
        assert_eq!(read(&silent), Completion::default());
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (body, reason) in [
            (&b"<html>"[..], "its answer is not JSON"),
            (b"{}", "`choices`"),
            (br#"{"choices": [{"message": {"content": 3}}]}"#, "no text"),
        ] {
            let text = Completion::read(body).unwrap_err();
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        assert_eq!(
            reason(br#"{"error": {"message": "no such  model"}}"#),
            "no such model"
        );
        assert_eq!(reason(br#"{"detail": "not here"}"#), "not here");
        assert_eq!(reason(b"Bad\nGateway"), "Bad Gateway");
        assert_eq!(reason(&[b'x'; 1000]).len(), LONGEST_REASON);
    }
}
