//! Builds the requests of chat completions (`POST …/v1/chat/completions`) and parses the answers,
//! without input or output.
//!
//! Sources: OpenAI's API reference ("Create chat completion"), which vLLM, lmdeploy, SGLang and
//! llama.cpp's server implement; the schema is EmbodiedBench's (`generation_guide.py`,
//! `vlm_generation_guide`).

use serde_json::{Map, Value, json};

use crate::policy::agent::picture::PngPicture;

/// The request parameters that do not change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChatModel {
    /// The model's name, in the field `model`.
    pub(super) name: String,
    /// The sampling temperature, in the field `temperature`.
    pub(super) temperature: f64,
    /// Name and value of the length limit: `max_tokens`, or `max_completion_tokens` for servers
    /// that require it.
    pub(super) max_tokens: (&'static str, usize),
    /// Additional fields of the body, specific to a server: `seed`, `top_p`,
    /// `chat_template_kwargs`.
    pub(super) extra: Map<String, Value>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatMessage {
    /// The role: `system`, `user` or `assistant`.
    pub(super) role: &'static str,
    /// The text of the message.
    pub(super) text: String,
    /// The pictures in the message.
    pub(super) pictures: Vec<PngPicture>,
}

impl ChatMessage {
    fn json(&self) -> Value {
        if self.pictures.is_empty() {
            return json!({"role": self.role, "content": self.text});
        }
        let mut content = Vec::new();
        for picture in &self.pictures {
            if self.pictures.len() > 1 {
                content
                    .push(json!({"type": "text", "text": format!("Camera `{}`:", picture.camera)}));
            }
            content.push(json!({"type": "image_url", "image_url": {"url": picture.data_url()}}));
        }
        content.push(json!({"type": "text", "text": self.text}));
        json!({"role": self.role, "content": content})
    }
}

impl ChatModel {
    /// Returns the body of a request. If `schema` is given, the server must make the answer conform
    /// to it.
    pub(super) fn body(&self, messages: &[ChatMessage], schema: Option<&Value>) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(self.name));
        body.insert(
            "messages".to_owned(),
            messages.iter().map(ChatMessage::json).collect(),
        );
        body.insert("temperature".to_owned(), json!(self.temperature));
        body.insert(self.max_tokens.0.to_owned(), json!(self.max_tokens.1));
        if let Some(schema) = schema {
            let format = json!({"name": "embodied_planning", "strict": true, "schema": schema});
            body.insert(
                "response_format".to_owned(),
                json!({"type": "json_schema", "json_schema": format}),
            );
        }
        body.extend(self.extra.clone());
        Value::Object(body)
    }
}

/// Returns the JSON schema of an answer; `sees` tells whether the model sees pictures.
pub(super) fn schema(sees: bool) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let mut properties = Map::new();
    if sees {
        properties.insert(
            "visual_state_description".to_owned(),
            text("What the pictures show now"),
        );
    }
    let reflection =
        "What was done so far and what came of it; if the last action or plan failed, why";
    properties.insert("reasoning_and_reflection".to_owned(), text(reflection));
    properties.insert(
        "language_plan".to_owned(),
        text("The plan in words: numbered steps, each with the name of its action"),
    );
    let action = json!({
        "type": "object",
        "properties": {
            "action_id": {"type": "integer", "description": "Number of the action in the list of available actions"},
            "action_name": text("Its name in that list"),
        },
        "required": ["action_id", "action_name"],
        "additionalProperties": false,
    });
    let plan = json!({
        "type": "array",
        "description": "The actions that fulfil the instruction, in order. An empty list says that nothing is left to do",
        "items": action,
    });
    properties.insert("executable_plan".to_owned(), plan);
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The answer of a server.
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
        let tokens = |name: &str| {
            value
                .pointer(&format!("/usage/{name}"))
                .and_then(Value::as_u64)
                .unwrap_or(0)
        };
        Ok(Self {
            text,
            prompt_tokens: tokens("prompt_tokens"),
            completion_tokens: tokens("completion_tokens"),
            is_cut: choice.get("finish_reason").and_then(Value::as_str) == Some("length"),
        })
    }
}

/// Returns the reason for which a server refused, from its body: OpenAI's `error.message`,
/// FastAPI's `detail`, or the text itself.
pub(super) fn reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let said = ["/error/message", "/message", "/detail", "/error"];
    let said = said
        .iter()
        .find_map(|path| value.pointer(path)?.as_str().map(str::to_owned));
    let said = said.unwrap_or_else(|| text.into_owned());
    let words: Vec<_> = said.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST_REASON).collect()
}

/// Maximum length of a server's reason in characters, because some servers answer with a web page.
const LONGEST_REASON: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ChatModel {
        let Value::Object(extra) = json!({"top_p": 0.5}) else {
            panic!()
        };
        ChatModel {
            name: "m".to_owned(),
            temperature: 0.0,
            max_tokens: ("max_tokens", 7),
            extra,
        }
    }

    fn message(cameras: &[&str]) -> ChatMessage {
        let picture = |camera: &&str| PngPicture {
            camera: (*camera).to_owned(),
            png: vec![1],
        };
        ChatMessage {
            role: "user",
            text: "go".to_owned(),
            pictures: cameras.iter().map(picture).collect(),
        }
    }

    #[test]
    fn a_body_has_what_every_server_knows() {
        let body = model().body(&[message(&[])], None);
        let wanted = json!({"model": "m", "messages": [{"role": "user", "content": "go"}], "temperature": 0.0,
                            "max_tokens": 7, "top_p": 0.5});
        assert_eq!(body, wanted);
        let body = model().body(&[message(&[])], Some(&schema(true)));
        let schema = &body["response_format"]["json_schema"]["schema"];
        assert_eq!(schema["required"][3], "executable_plan");
    }

    #[test]
    fn pictures_come_before_the_words_and_several_are_named() {
        let content = |cameras: &[&str]| {
            model().body(&[message(cameras)], None)["messages"][0]["content"].clone()
        };
        let url = json!({"url": "data:image/png;base64,AQ=="});
        let image = json!({"type": "image_url", "image_url": url});
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(content(&["a"]), json!([image, text("go")]));
        let (a, b) = (text("Camera `a`:"), text("Camera `b`:"));
        let wanted = json!([a, image, b, image, text("go")]);
        assert_eq!(content(&["a", "b"]), wanted);
    }

    #[test]
    fn without_pictures_nobody_is_asked_to_describe_them() {
        assert_eq!(schema(false)["properties"].as_object().unwrap().len(), 3);
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
