use proptest::prelude::*;

use super::*;

const PATH: &str = "model/config.json";

fn model(value: &Value) -> Result<ModelConfig, LoadError> {
    ModelConfig::parse(Path::new(PATH), value.as_object().unwrap())
}

fn vlm(value: &Value) -> Result<VlmConfig, LoadError> {
    VlmConfig::parse(Path::new(PATH), value.as_object().unwrap())
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

#[test]
fn another_model_is_refused() {
    let text = model(&json!({"model_type": "Gr00tN1d6"}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "`model/config.json`: `model_type` is \"Gr00tN1d6\", expected \"Gr00tN1d7\""
    );
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let config = changed(
        ModelConfig::released().to_json(),
        "/diffusion_model_cfg/num_layers",
        json!("32"),
    );
    let text = model(&config).unwrap_err().to_string();
    assert_eq!(
        text,
        "`model/config.json`: `diffusion_model_cfg.num_layers` is \"32\", expected an integer from \
         1 to 1024"
    );
}

#[test]
fn a_sinusoidal_position_is_not_guessed() {
    let config = changed(
        ModelConfig::released().to_json(),
        "/diffusion_model_cfg",
        json!({"num_layers": 4}),
    );
    let text = model(&config).unwrap_err().to_string();
    assert_eq!(
        text,
        "`model/config.json`: `diffusion_model_cfg.positional_embeddings` is missing, expected null"
    );
}

#[test]
fn widths_that_do_not_fit_are_refused() {
    let text = model(&changed(
        ModelConfig::released().to_json(),
        "/input_embedding_dim",
        json!(1024),
    ))
    .unwrap_err();
    assert!(
        text.to_string()
            .contains("`input_embedding_dim` is 1024, expected 1536"),
        "{text}"
    );
    let config = changed(
        VlmConfig::released().to_json(),
        "/text_config/num_key_value_heads",
        json!(5),
    );
    let text = vlm(&config).unwrap_err().to_string();
    assert!(
        text.contains("`text_config.num_key_value_heads` is 5, expected a divisor of 16 heads"),
        "{text}"
    );
    let config = changed(
        VlmConfig::released().to_json(),
        "/text_config/rope_scaling/mrope_section",
        json!([24, 20]),
    );
    let text = vlm(&config).unwrap_err().to_string();
    assert!(
        text.contains(
            "`text_config.rope_scaling.mrope_section` is [24,20], expected three numbers"
        ),
        "{text}"
    );
}

#[test]
fn a_backbone_of_another_width_is_refused() {
    let mut backbone = VlmConfig::released();
    backbone.text.hidden_size = 2560;
    let refused = ModelConfig::released()
        .check_backbone(Path::new(PATH), &backbone)
        .unwrap_err()
        .to_string();
    assert!(
        refused.ends_with(
            "`backbone_embedding_dim` is 2048, expected the backbone's hidden_size 2560"
        )
    );
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
                prop_assert!(!crate::layout::tensors(&model, &vlm).is_empty());
            }
            (Err(refused), _) | (_, Err(refused)) => {
                prop_assert!(refused.to_string().starts_with("`model/config.json`: `"), "{}", refused);
            }
        }
    }

    #[test]
    fn any_text_is_an_error_with_the_file(text in ".{0,200}") {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let refused = ModelConfig::read(file.path()).unwrap_err().to_string();
        prop_assert!(refused.contains(&file.path().display().to_string()));
    }
}
