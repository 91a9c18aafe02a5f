//! The known word that is most like an unknown one.

/// Returns the known word that is most like `word`, if one is alike enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word, known, (word.chars().count() / 3).max(1))
}

/// Returns the known word that is most like `word`, and no more than so many letters from it.
pub fn nearest_within<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Option<&'a str> {
    // Of two that are as near, the one of the same length is meant more often: letters get swapped.
    let ranked = known
        .into_iter()
        .map(|known| (edit_distance(word, known), known.len().abs_diff(word.len()), known));
    ranked.filter(|(distance, ..)| *distance <= most).min().map(|(.., known)| known)
}

/// Returns the question that follows a complaint of an unknown word; nothing where no known one is meant.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", did you mean `{nearest}`?"))
}

/// Returns how many letters have to be added, removed, replaced or swapped with their neighbour.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Three rows of the table are enough: a swap looks two rows back.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_more_less_other_or_swapped_is_one_step() {
        for word in ["timeot", "timeoutt", "timoout", "tiemout"] {
            assert_eq!(edit_distance(word, "timeout"), 1, "{word}");
        }
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn what_is_not_alike_is_not_suggested() {
        assert_eq!(nearest("modle", ["model", "mode"]), Some("model"));
        assert_eq!(nearest("colour", ["model", "mode"]), None);
    }
}
