use thiserror::Error;

use crate::edges::Edges;

/// An error of a schema. Every message says what was given and what would fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A distribution that is none of `BLOCK`, `CYCLIC`, `CYCLIC(k)`, `*`.
    #[error("'{0}' is not a distribution: use BLOCK, CYCLIC, CYCLIC(k) with k of at least 1, or *")]
    UnknownDist(String),
    /// The number of distributions is not the number of dimensions.
    #[error("{dists} distributions for an array of {dims} dimensions")]
    DistCount {
        /// The number of distributions given.
        dists: usize,
        /// The number of dimensions of the array.
        dims: usize,
    },
    /// The mesh has not one extent for each distributed dimension.
    #[error(
        "the mesh {mesh:?} has {} extents, but {distributed} dimensions are distributed \
         (one extent for each, in order; '*' takes none)", mesh.len()
    )]
    MeshRank {
        /// The mesh as given.
        mesh: Vec<u64>,
        /// The number of dimensions that are not `*`.
        distributed: usize,
    },
    /// A mesh or chunk extent of zero.
    #[error("{what} {given:?} has an extent of zero")]
    ZeroExtent {
        /// The name of the mesh, chunk or width.
        what: &'static str,
        /// The extents as given.
        given: Vec<u64>,
    },
    /// The array and a chunk or box have different numbers of dimensions.
    #[error("{what} {given:?} has {} dimensions, the array {dims}", given.len())]
    DimCount {
        /// The name of the chunk or box.
        what: &'static str,
        /// The extents as given.
        given: Vec<u64>,
        /// The array's number of dimensions.
        dims: usize,
    },
    /// A box reaches out of the array.
    #[error(
        "the box of rank {rank}, start {start:?} shape {extents:?}, is not inside the array {array:?}"
    )]
    OutOfBounds {
        /// The rank that holds the box.
        rank: usize,
        /// The start of the box.
        start: Vec<u64>,
        /// The extents of the box.
        extents: Vec<u64>,
        /// The array's shape.
        array: Vec<u64>,
    },
    /// Two boxes share elements.
    #[error("{} overlap at {at:?}", owners(*first, *second))]
    Overlap {
        /// The lower rank.
        first: usize,
        /// The higher rank, or `first` again if one rank holds both boxes.
        second: usize,
        /// The first element of both boxes.
        at: Vec<u64>,
    },
    /// The shares of a list are not numbered through all ranks.
    #[error("the first shares {firsts:?} of ranks do not ascend from 0 to the number of boxes")]
    ShareNumbers {
        /// The number of each rank's first share.
        firsts: Vec<usize>,
    },
    /// A list has not one length for each offset.
    #[error("{offsets} offsets of runs, but {lengths} lengths: there must be one for each")]
    RunCounts {
        /// The number of offsets.
        offsets: usize,
        /// The number of lengths.
        lengths: usize,
    },
    /// A series of a list has no elements, or too many, or reaches too far.
    #[error(
        "{series} are none, or reach below 0 or beyond 2^63 - 1, or are more than 2^63 - 1 elements"
    )]
    ListReach {
        /// The series in words.
        series: String,
    },
    /// A list has more than 2^63 - 1 elements.
    #[error("the {series} series of a list have more than 2^63 - 1 elements together")]
    ListTooLong {
        /// The number of series.
        series: usize,
    },
    /// A list reaches out of its array or memory.
    #[error("the elements {start}..{end} of a list are not all inside the {extent} that there are")]
    ListOutside {
        /// The lowest offset of the series that reaches out.
        start: u64,
        /// One past its highest offset.
        end: u64,
        /// The number of elements of the array or the memory.
        extent: u64,
    },
    /// The lists of a file and of a memory have different numbers of elements.
    #[error("the list of the file has {file} elements, the list of the memory {memory}")]
    ListCounts {
        /// The elements of the list in the file.
        file: u64,
        /// The elements of the list in memory.
        memory: u64,
    },
    /// The inner chunks do not divide the chunk.
    #[error("sub-chunks {inner:?} do not divide the chunk {chunk:?} evenly")]
    InnerDoesNotDivide {
        /// The extents of the chunks.
        chunk: Vec<Edges>,
        /// The extents of the sub-chunk.
        inner: Vec<u64>,
    },
    /// The chunks that are listed for a dimension do not divide it among them.
    #[error(
        "{chunks} chunks are listed for dimension {dim}, of {elements} elements together, and the array \
         has {extent} there: each chunk must have one of them, and the last must reach their end"
    )]
    Edges {
        /// The dimension.
        dim: usize,
        /// The number of chunks.
        chunks: usize,
        /// The elements of all chunks along the dimension.
        elements: u64,
        /// The extent of the array.
        extent: u64,
    },
    /// Boxes are no cells of a grid.
    #[error(
        "the boxes form no grid: the end of another one cuts dimension {dim} at {at}, within the box of \
         start {start:?} and shape {extents:?}"
    )]
    NoGrid {
        /// The dimension.
        dim: usize,
        /// The index at which the dimension is cut.
        at: u64,
        /// The start of the box that is cut.
        start: Vec<u64>,
        /// The extents of the box.
        extents: Vec<u64>,
    },
    /// Shares have several runs in a dimension, so they are no chunks.
    #[error("a {dist} share has several runs in dimension {dim}: it is no chunk")]
    ScatteredShares {
        /// The dimension.
        dim: usize,
        /// The distribution of the dimension, in words.
        dist: String,
    },
    /// A window does not begin in its first chunk.
    #[error("a window begins {before} rows into chunks {chunk:?}")]
    Window {
        /// The rows of the first chunk that are before the window.
        before: u64,
        /// The extents of the chunk.
        chunk: Vec<u64>,
    },
    /// A number of a view is zero, or a product too large.
    #[error("the view {given:?} (vbs, vn, hbs, hn) has a zero, or a product of two beyond 2^62")]
    View {
        /// The numbers vbs, vn, hbs and hn.
        given: [u64; 4],
    },
    /// A view has no such subfile.
    #[error("subfile {number} of a view that has {subfiles}")]
    Subfile {
        /// The number of the subfile.
        number: u64,
        /// The subfiles of the view.
        subfiles: u64,
    },
    /// A file without cells, or with BSUs of no bytes or of too many.
    #[error(
        "a file of {cells} cells with BSUs of {bsu_bytes} bytes: there must be 1 of each at          least, and a view's block must have at most 2^62 bytes of a cell"
    )]
    Cells {
        /// The number of cells.
        cells: u64,
        /// The bytes of a BSU.
        bsu_bytes: u64,
    },
    /// An access reaches beyond the end that a subfile or a cell can have.
    #[error("{bytes} bytes from byte {offset} on reach beyond 2^62 bytes of a subfile or a cell")]
    BeyondCell {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// The array has more than 2^63 - 1 bytes.
    #[error(
        "an array of shape {shape:?} with elements of {width} bytes is larger than 2^63 - 1 bytes"
    )]
    TooLarge {
        /// The array's shape.
        shape: Vec<u64>,
        /// The bytes of an element.
        width: u64,
    },
}

fn owners(first: usize, second: usize) -> String {
    match first == second {
        true => format!("two boxes of rank {first}"),
        false => format!("the boxes of ranks {first} and {second}"),
    }
}
