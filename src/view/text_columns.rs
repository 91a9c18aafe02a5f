//! Tables of text in columns, for a terminal.

/// Returns a line for each row; a column is as wide as its widest cell. A column with numbers, as `is_number` has it, is
/// aligned right, any other left.
pub fn in_columns<R: AsRef<[String]>>(rows: &[R], is_number: impl Fn(usize) -> bool) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.as_ref().get(column));
    let widths = (0..).map_while(|column| cells(column).map(|cell| cell.chars().count()).max());
    let widths: Vec<usize> = widths.collect();
    let pad = |(column, cell): (usize, &String)| match (is_number(column), widths[column]) {
        (true, width) => format!("{cell:>width$}"),
        (false, width) => format!("{cell:<width$}"),
    };
    let line = |row: &R| {
        let cells: Vec<String> = row.as_ref().iter().enumerate().map(pad).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [["name", "n", ""], ["é", "10", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(in_columns(&rows, |column| column == 1), "name   n\né     10  x\n");
        assert_eq!(in_columns::<Vec<String>>(&[], |_| true), "");
    }
}
