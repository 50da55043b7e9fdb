//! Runs the example of the documentation.

use super::*;

/// Returns the first block of Python code in a page.
fn example(page: &str) -> String {
    let (_, after) = page.split_once("```python\n").unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_example_of_the_documentation_works_and_has_ten_lines() {
    let page = std::fs::read_to_string(root().join("docs/python_policy.md")).unwrap();
    let code = example(&page);
    assert!(code.lines().count() <= 10, "{code}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my_policy.py");
    std::fs::write(&file, code).unwrap();
    let name = format!("{}:make", file.display());
    let config = settings("", json!({"policy": name, "policy_kwargs": {"noise": 0.1}}));
    let mut policy = try_start(&config, &Lifeline::alone()).unwrap();
    begin(&mut policy, &[5, 6]);
    let together = act(&mut policy, &[0, 1]);
    assert!(together.iter().all(|chunk| chunk.failure().is_none()));
    assert_ne!(
        together[0], together[1],
        "each episode has noise of its own"
    );
    begin(&mut policy, &[5]);
    assert_eq!(
        act(&mut policy, &[0])[0],
        together[0],
        "which follows from its seed"
    );
}
