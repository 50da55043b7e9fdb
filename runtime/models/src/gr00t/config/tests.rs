use proptest::prelude::*;
use serde_json::json;

use super::*;

const PATH: &str = "model/config.json";

fn document(value: &Value) -> Document {
    Document::parse(Path::new(PATH), value.to_string().as_bytes()).unwrap()
}

fn model(value: &Value) -> Result<ModelConfig, Refusal> {
    ModelConfig::parse(document(value))
}

fn vlm(value: &Value) -> Result<VlmConfig, Refusal> {
    VlmConfig::parse(&document(value))
}

/// Returns the released configuration with the field at a JSON pointer replaced.
fn changed(mut config: Value, pointer: &str, value: Value) -> Value {
    *config.pointer_mut(pointer).unwrap() = value;
    config
}

/// Lists all places of a JSON object, as JSON pointers.
fn pointers(prefix: &str, value: &Value, found: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let pointer = format!("{prefix}/{name}");
        pointers(&pointer, value, found);
        found.push(pointer);
    }
}

#[test]
fn a_missing_field_is_the_class_default() {
    assert_eq!(
        model(&json!({"model_type": "Gr00tN1d7"})).unwrap(),
        ModelConfig::default()
    );
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(
        model(&ModelConfig::released().to_json()).unwrap(),
        ModelConfig::released()
    );
    assert_eq!(
        vlm(&VlmConfig::released().to_json()).unwrap(),
        VlmConfig::released()
    );
}

#[test]
fn no_blocks_of_self_attention_are_none() {
    let config = changed(
        ModelConfig::released().to_json(),
        "/vl_self_attention_cfg/num_layers",
        json!(0),
    );
    assert_eq!(model(&config).unwrap().vl_self_attention_cfg, None);
}

/// `model` or `vlm`, and under it pointers of fields with other values than the released ones.
#[test]
fn what_does_not_fit_is_refused_by_its_field() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gr00t/config/refusals.txt");
    rig::cases::check(cases, |given| {
        let mut released = [
            ModelConfig::released().to_json(),
            VlmConfig::released().to_json(),
        ];
        let (which, changes) = given.split_once('\n').unwrap();
        let config = &mut released[usize::from(which == "vlm")];
        for change in changes.lines() {
            let (pointer, value) = change.split_once(" = ").unwrap();
            *config = changed(config.take(), pointer, serde_json::from_str(value).unwrap());
        }
        let [model_json, vlm_json] = released;
        let refused = vlm(&vlm_json)
            .and_then(|vlm| model(&model_json)?.check_backbone(Path::new(PATH), &vlm));
        refused.unwrap_err().to_string()
    });
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..70_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{1,20}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_value_in_any_field_is_accepted_or_named(value in any_json(), place in any::<prop::sample::Index>()) {
        let configs = [ModelConfig::released().to_json(), VlmConfig::released().to_json()];
        let mut places = Vec::new();
        configs.iter().enumerate().for_each(|(at, config)| {
            let mut found = Vec::new();
            pointers("", config, &mut found);
            places.extend(found.into_iter().map(|pointer| (at, pointer)));
        });
        let (at, pointer) = place.get(&places);
        let config = changed(configs[*at].clone(), pointer, value);
        let (model, vlm) = match at {
            0 => (model(&config), Ok(VlmConfig::released())),
            _ => (Ok(ModelConfig::released()), vlm(&config)),
        };
        match (model, vlm) {
            (Ok(model), Ok(vlm)) => {
                let _ = model.check_backbone(Path::new(PATH), &vlm);
            }
            (Err(refused), _) | (_, Err(refused)) => {
                prop_assert!(refused.to_string().starts_with("`model/config.json`: `"), "{}", refused);
            }
        }
    }
}
