//! Turns the segments of a component into processes, dealt block-wise as in RLinf.

use std::ops::RangeInclusive;

use crate::placement::error::ComponentError;
use crate::placement::grammar::{ComponentSegment, GpuSelection, LARGEST};
use crate::placement::{PlacedProcess, Resources};

/// Returns the processes of all segments, by their process numbers.
pub(super) fn processes(
    segments: &[ComponentSegment],
    resources: Resources,
) -> Result<Vec<PlacedProcess>, ComponentError> {
    let mut placed: Vec<PlacedProcess> = Vec::new();
    let mut last_gpu: Option<usize> = None;
    for segment in segments {
        let gpus = gpus(&segment.gpus, resources)?;
        if let Some(last) = last_gpu.filter(|last| gpus.start() <= last) {
            return Err(ComponentError::GpuOrder {
                found: *gpus.start(),
                last,
            });
        }
        last_gpu = Some(*gpus.end());
        placed.extend(deal(&gpus, segment.processes.as_ref(), placed.len())?);
    }
    if placed.len() > LARGEST + 1 {
        return Err(ComponentError::TooLarge {
            found: (placed.len() - 1).to_string(),
            most: LARGEST,
        });
    }
    stay_on_one_node(&placed, resources)?;
    Ok(placed)
}

fn gpus(
    gpus: &GpuSelection,
    resources: Resources,
) -> Result<RangeInclusive<usize>, ComponentError> {
    let total = match resources {
        Resources::Gpus { per_node, nodes } => Some(per_node * nodes),
        Resources::Labels => None,
    };
    match (gpus, total) {
        (GpuSelection::All, total) => Ok(0..=total.unwrap_or(1) - 1),
        (GpuSelection::Range(range), Some(total)) if *range.end() >= total => {
            Err(ComponentError::NotThere {
                gpu: (*range.start()).max(total),
                resources,
            })
        }
        (GpuSelection::Range(range), _) => Ok(range.clone()),
    }
}

/// Deals GPUs to processes: consecutive processes share a GPU, or each process has a block of GPUs.
/// `next` is the number of the first process.
fn deal(
    gpus: &RangeInclusive<usize>,
    processes: Option<&RangeInclusive<usize>>,
    next: usize,
) -> Result<Vec<PlacedProcess>, ComponentError> {
    let gpus: Vec<usize> = gpus.clone().collect();
    let count = match processes {
        None => gpus.len(),
        Some(range) if *range.start() != next => {
            return Err(ComponentError::ProcessOrder {
                found: *range.start(),
                wanted: next,
            });
        }
        Some(range) => range.clone().count(),
    };
    if gpus.len().is_multiple_of(count) {
        return Ok(gpus
            .chunks(gpus.len() / count)
            .map(|block| PlacedProcess {
                gpus: block.to_vec(),
            })
            .collect());
    }
    if !count.is_multiple_of(gpus.len()) {
        let nearest = nearest(count, gpus.len());
        return Err(ComponentError::Uneven {
            processes: count,
            gpus: gpus.len(),
            nearest,
        });
    }
    let each = count / gpus.len();
    Ok((0..count)
        .map(|process| PlacedProcess {
            gpus: vec![gpus[process / each]],
        })
        .collect())
}

/// Returns the numbers nearest to `count` that divide `gpus` or are multiples of it, ascending.
fn nearest(count: usize, gpus: usize) -> Vec<usize> {
    let fits = |number: &usize| gpus.is_multiple_of(*number) || number.is_multiple_of(gpus);
    let below = (1..count).rev().find(fits);
    let above = (count + 1..=count + gpus).find(fits);
    below.into_iter().chain(above).collect()
}

fn stay_on_one_node(placed: &[PlacedProcess], resources: Resources) -> Result<(), ComponentError> {
    for (process, PlacedProcess { gpus }) in placed.iter().enumerate() {
        let (Some(&first), Some(&last)) = (gpus.first(), gpus.last()) else {
            continue;
        };
        if let (Some(a), Some(b)) = (resources.node(first), resources.node(last))
            && a != b
        {
            return Err(ComponentError::Straddles {
                process,
                first,
                last,
                nodes: (a, b),
            });
        }
    }
    Ok(())
}
