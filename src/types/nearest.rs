//! The known word that is closest to an unknown one, for suggestions.

/// Returns the known word that is closest to `word`, if it is similar enough to be the intended one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word, known, (word.chars().count() / 3).max(1))
}

/// Returns the known word that is closest to `word`, with at most this edit distance.
pub fn nearest_within<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Option<&'a str> {
    // Of two words at the same distance, prefer the one of the same length: swapped letters are the more common mistake.
    let ranked = known
        .into_iter()
        .map(|known| (edit_distance(word, known), known.len().abs_diff(word.len()), known));
    ranked.filter(|(distance, ..)| *distance <= most).min().map(|(.., known)| known)
}

/// Returns the question that follows an error about an unknown word; empty without a suggestion.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", did you mean `{nearest}`?"))
}

/// Returns the number of letters to add, remove, replace or swap with their neighbour.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Three rows of the table are enough: a swap refers to the row before the previous one.
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
    fn an_insertion_removal_replacement_or_swap_is_one_step() {
        for word in ["timeot", "timeoutt", "timoout", "tiemout"] {
            assert_eq!(edit_distance(word, "timeout"), 1, "{word}");
        }
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn distant_words_are_not_suggested() {
        assert_eq!(nearest("modle", ["model", "mode"]), Some("model"));
        assert_eq!(nearest("colour", ["model", "mode"]), None);
    }
}
