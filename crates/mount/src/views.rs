//! Names that open a view: `mesh@1,1,1,8:3` is subfile 3 of the view 1, 1, 1, 8 of `mesh`.

use penstock_files::FileShape;
use penstock_layout::{Subfile, SubfileOrder, View};

/// A subfile of a view, as a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ViewName {
    pub(crate) view: View,
    pub(crate) subfile: u64,
}

impl ViewName {
    /// Reads a name: gives the file's name and the view, or nothing for a name without a view.
    pub(crate) fn read(name: &str) -> Option<(&str, Self)> {
        let (file, rest) = name.rsplit_once('@')?;
        let (numbers, subfile) = rest.split_once(':')?;
        let numbers = numbers.split(',').map(|number| number.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let [vbs, vn, hbs, hn] = numbers.try_into().ok()?;
        let view = View::new(vbs, vn, hbs, hn).ok()?;
        let subfile = subfile.parse::<u64>().ok()?;
        (!file.is_empty()).then_some((file, Self { view, subfile }))
    }

    /// The whole file in canonical order.
    pub(crate) fn whole() -> Self {
        Self {
            view: View::striped(),
            subfile: 0,
        }
    }

    /// The subfile in a file of this structure, if it has it.
    pub(crate) fn subfile(&self, shape: &FileShape) -> Option<Subfile> {
        let numbers = (shape.cells, shape.bsu_bytes);
        Subfile::new(self.view, self.subfile, SubfileOrder::Block, numbers).ok()
    }
}

/// One past the last byte of a subfile of a file whose cells have these bytes.
pub(crate) fn size_of(subfile: &Subfile, cells: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let cells = cells.into_iter();
    let ends = cells.filter_map(|(cell, bytes)| subfile.end_in(cell, bytes));
    ends.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use penstock_files::placement::Placement;

    use super::*;

    #[test]
    fn names() {
        let read = |name| {
            let (file, view) = ViewName::read(name)?;
            Some((file, view.view.numbers(), view.subfile))
        };
        assert_eq!(read("mesh@1,2,3,4:5"), Some(("mesh", [1, 2, 3, 4], 5)));
        assert_eq!(read("a@b@1,1,1,2:0"), Some(("a@b", [1, 1, 1, 2], 0)));
        for name in [
            "mesh",
            "mesh@",
            "@1,1,1,1:0",
            "mesh@1,1,1:0",
            "mesh@1,1,1,0:0",
            "mesh@1,1,1,1",
            "mesh@1,1,1,x:0",
            "me@mail.org",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
    }

    #[test]
    fn a_subfile_ends_with_its_last_byte() {
        let shape = FileShape {
            cells: 4,
            bsu_bytes: 10,
            base: 0,
            placement: Placement::default(),
        };
        let column = ViewName::read("f@1,1,1,4:2").unwrap().1;
        let subfile = column.subfile(&shape).unwrap();
        assert_eq!(size_of(&subfile, [(0, 99), (2, 25)]), 25);
        assert_eq!(size_of(&subfile, [(0, 99)]), 0);
        assert!(
            ViewName::read("f@1,1,1,4:4")
                .unwrap()
                .1
                .subfile(&shape)
                .is_none()
        );
    }
}
