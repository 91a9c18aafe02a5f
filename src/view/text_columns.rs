//! Tables of text in columns, for a terminal.

use super::sanitize;

/// The width of a terminal in columns.
pub const TERMINAL_WIDTH: usize = 80;

/// Returns a line for each row. Each column is as wide as its widest cell. Columns for which `is_number` returns true
/// are aligned right, others left.
pub fn in_columns<R: AsRef<[String]>>(rows: &[R], is_number: impl Fn(usize) -> bool) -> String {
    in_columns_within(usize::MAX, rows, is_number)
}

/// Returns the same in lines of at most `width` characters, if the cells after the first ones are short enough. To fit,
/// the gap between columns is narrower, and a long first cell gets its own line.
pub fn in_columns_within<R: AsRef<[String]>>(
    width: usize,
    rows: &[R],
    is_number: impl Fn(usize) -> bool,
) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.as_ref().get(column));
    let widths = (0..).map_while(|column| cells(column).map(|cell| cell.chars().count()).max());
    let mut widths: Vec<usize> = widths.collect();
    let total =
        |gap: usize| widths.iter().map(|width| width + gap).sum::<usize>().saturating_sub(gap);
    let gap = if total(2) <= width { 2 } else { 1 };
    let surplus = total(gap).saturating_sub(width);
    if let Some(first) = widths.first_mut() {
        *first = first.saturating_sub(surplus).max(MIN_INDENTATION.min(*first));
    }
    let pad = |(column, cell): (usize, &str)| match (is_number(column), widths[column]) {
        (true, width) => format!("{cell:>width$}"),
        (false, width) => format!("{cell:<width$}"),
    };
    let line = |cells: &[&str]| {
        let cells: Vec<String> = cells.iter().copied().enumerate().map(pad).collect();
        cells.join(&" ".repeat(gap)).trim_end().to_owned() + "\n"
    };
    let lines = rows.iter().map(|row| {
        let mut cells: Vec<&str> = row.as_ref().iter().map(String::as_str).collect();
        match cells.first_mut() {
            Some(first) if first.chars().count() > widths[0] => {
                let name = std::mem::take(first);
                format!("{name}\n{}", line(&cells))
            }
            _ => line(&cells),
        }
    });
    lines.collect()
}

/// Shortens the cells of a column, so that the lines of [`in_columns`] have at most `width` characters. Cells don't get
/// shorter than `least`.
pub fn shorten_column<const N: usize>(
    rows: &mut [[String; N]],
    column: usize,
    least: usize,
    width: usize,
) {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let total = (0..N).filter_map(widest).sum::<usize>() + 2 * N.saturating_sub(1);
    let most = widest(column).unwrap_or(0).saturating_sub(total.saturating_sub(width)).max(least);
    rows.iter_mut().for_each(|row| row[column] = sanitize::truncate(&row[column], most));
}

/// The minimum indentation of a line whose first cell is on its own line.
const MIN_INDENTATION: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [["name", "n", ""], ["é", "10", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(in_columns(&rows, |column| column == 1), "name   n\né     10  x\n");
        assert_eq!(in_columns::<Vec<String>>(&[], |_| true), "");
    }

    #[test]
    fn a_long_first_cell_has_a_line_of_its_own() {
        let rows = [["name", "n"], ["abcdefghi", "10"]].map(|row| row.map(str::to_owned));
        let within = |width| in_columns_within(width, &rows, |column| column == 1);
        assert_eq!(within(13), "name        n\nabcdefghi  10\n");
        assert_eq!(within(12), "name       n\nabcdefghi 10\n");
        assert_eq!(within(8), "name   n\nabcdefghi\n      10\n");
    }
}
