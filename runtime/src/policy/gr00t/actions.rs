//! The actions of a checkpoint's keys in the action vector of an environment.

use jobs::wiring::ActionPlaces;
use models::gr00t::processor::KeyActions;

use crate::policy::Chunk;

/// Returns the chunk of a row, `[horizon, dim]`, with 0 where the checkpoint gives no value.
pub(crate) fn placed(
    places: &ActionPlaces,
    keys: &[KeyActions],
    [horizon, dim]: [usize; 2],
) -> Chunk {
    let mut values = vec![0.0; horizon * dim];
    for KeyActions {
        key,
        width,
        values: of_key,
    } in keys
    {
        let steps = of_key
            .chunks_exact(*width)
            .zip(values.chunks_exact_mut(dim));
        steps.for_each(|(step, action)| places.place(key, step, action));
    }
    Chunk::new(dim, values)
}
