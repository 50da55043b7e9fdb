//! Positions of text and image tokens along time, height and width (transformers: `get_rope_index`
//! of Qwen3-VL).

use jobs::refusal::Refusal;

use crate::gr00t::model::prompt::Text;

/// The position that padding gets.
const PADDED: i64 = 1;

/// Returns the positions, `[3, rows, S]`, row-major. A text token advances all axes by one. An
/// image counts its rows and columns from its start, and the text continues after its longest side.
pub(super) fn positions(text: &Text<'_>, merge: i64) -> Result<Vec<i64>, Refusal> {
    let mut axes = [(); 3].map(|()| vec![PADDED; text.ids.len()]);
    let length = text.ids.len() / text.rows.max(1) as usize;
    let mut grids = text.grids.iter();
    for (sample, start) in (0..text.ids.len()).step_by(length.max(1)).enumerate() {
        let tokens: Vec<_> = (start..start + length)
            .filter(|&at| text.mask[at] != 0)
            .collect();
        let mut rest = &tokens[..];
        let mut next = 0;
        while let Some((&at, after)) = rest.split_first() {
            if text.ids[at] != text.image_token_id {
                axes.iter_mut().for_each(|axis| axis[at] = next);
                next += 1;
                rest = after;
                continue;
            }
            let found = rest
                .iter()
                .take_while(|&&at| text.ids[at] == text.image_token_id)
                .count();
            let Some([_, height, width]) = grids.next() else {
                return Err(image_tokens(sample, found, 0));
            };
            let (height, width) = (height / merge, width / merge);
            let wanted = height * width;
            if wanted == 0 || wanted > found as i64 {
                return Err(image_tokens(sample, found, wanted));
            }
            let (image, after) = rest.split_at(wanted as usize);
            for (token, &at) in (0..).zip(image) {
                [0, token / width, token % width]
                    .into_iter()
                    .zip(&mut axes)
                    .for_each(|(p, axis)| axis[at] = next + p);
            }
            next += height.max(width);
            rest = after;
        }
    }
    let left = grids.count();
    if left > 0 {
        let (found, wanted) = (text.grids.len() - left, text.grids.len());
        return Err(Refusal::new(format_args!(
            "the prompts have placeholders for {found} images, the batch has {wanted}"
        )));
    }
    Ok(axes.concat())
}

fn image_tokens(sample: usize, found: usize, wanted: i64) -> Refusal {
    Refusal::new(format_args!(
        "sample {sample}: {found} image tokens in its prompt, its images have {wanted}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: i64 = 9;

    fn of(ids: &[i64], mask: &[i64], grids: &[[i64; 3]], rows: i64) -> Result<Vec<i64>, Refusal> {
        positions(
            &Text {
                ids: ids.to_vec(),
                mask: mask.to_vec(),
                grids,
                rows,
                image_token_id: IMAGE,
            },
            2,
        )
    }

    #[test]
    fn text_goes_on_behind_the_longest_side_of_an_image() {
        let ids = [5, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 6];
        let found = of(&ids, &[1; 8], &[[1, 4, 6]], 1).unwrap();
        assert_eq!(found[..8], [0, 1, 1, 1, 1, 1, 1, 4]);
        assert_eq!(found[8..16], [0, 1, 1, 1, 2, 2, 2, 4]);
        assert_eq!(found[16..], [0, 1, 2, 3, 1, 2, 3, 4]);
    }

    #[test]
    fn padding_stays_at_one_and_does_not_count() {
        assert_eq!(
            of(&[0, 0, 5, 6], &[0, 0, 1, 1], &[], 1).unwrap()[..4],
            [1, 1, 0, 1]
        );
    }

    #[test]
    fn a_second_sample_starts_anew() {
        assert_eq!(
            of(&[5, 6, 7, 8], &[1; 4], &[], 2).unwrap()[..4],
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn too_few_placeholders_are_refused() {
        let text = of(&[5, IMAGE], &[1; 2], &[[1, 4, 4]], 1)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "sample 0: 1 image tokens in its prompt, its images have 4"
        );
    }

    #[test]
    fn an_image_without_a_placeholder_is_refused() {
        let text = of(&[5, 6], &[1; 2], &[[1, 4, 4]], 1)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "the prompts have placeholders for 0 images, the batch has 1"
        );
    }
}
