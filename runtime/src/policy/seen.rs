//! What an observation shows of the sources that fill a policy's inputs.

use jobs::wiring::StatePart;

use crate::env::{Frame, Observation};
use crate::policy::RowError;

/// Returns the values of several states, or of parts of them, one after the other.
///
/// # Errors
/// Returns an error if the observation lacks one, or has a shorter one than was announced.
pub(crate) fn numbers(
    parts: &[StatePart],
    observation: &Observation,
) -> Result<Vec<f32>, RowError> {
    let mut numbers = Vec::new();
    for StatePart { of, at } in parts {
        let gone = || RowError::no_state(of);
        let whole = observation.state.get(of).ok_or_else(gone)?;
        match at {
            None => numbers.extend_from_slice(whole),
            Some(at) => {
                for index in at {
                    numbers.push(*whole.get(*index).ok_or_else(gone)?);
                }
            }
        }
    }
    Ok(numbers)
}

/// Returns the image of a camera.
///
/// # Errors
/// Returns an error if the observation lacks it.
pub(crate) fn frame<'a>(camera: &str, observation: &'a Observation) -> Result<&'a Frame, RowError> {
    let frame = observation.video.get(camera);
    frame.ok_or_else(|| RowError::no_picture(camera))
}

/// Returns the instruction of an observation, or that of the settings if it has none.
pub(crate) fn words<'a>(observation: &'a Observation, fallback: Option<&'a str>) -> &'a str {
    match &*observation.language {
        "" => fallback.unwrap_or_default(),
        own => own,
    }
}

/// Returns [`words`], of which there must be some.
///
/// # Errors
/// Returns an error if there are none.
pub(crate) fn instruction<'a>(
    observation: &'a Observation,
    fallback: Option<&'a str>,
) -> Result<&'a str, RowError> {
    Some(words(observation, fallback))
        .filter(|words| !words.is_empty())
        .ok_or(RowError::no_instruction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_parts_of_them_stand_one_after_the_other() {
        let mut observation = Observation::default();
        let mut state = |name: &str, values| observation.state.insert(name.to_owned(), values);
        state("a", vec![1.0, 2.0, 3.0]);
        state("b", vec![4.0]);
        let part = |of: &str, at: Option<&[usize]>| StatePart {
            of: of.to_owned(),
            at: at.map(<[usize]>::to_vec),
        };
        let parts = [part("b", None), part("a", Some(&[2, 0])), part("a", None)];
        let found = numbers(&parts, &observation).unwrap();
        assert_eq!(found, [4.0, 3.0, 1.0, 1.0, 2.0, 3.0]);
        for missing in [part("c", None), part("b", Some(&[1]))] {
            numbers(&[missing], &observation).unwrap_err();
        }
    }
}
