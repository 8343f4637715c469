//! The arguments of `penstock fs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Subcommand)]
pub(crate) enum Fs {
    /// Make a volume
    CreateVolume(CreateVolume),
    /// List a directory
    Ls(List),
    /// Make directories
    Mkdir(Mkdir),
    /// Make a file
    Create(Create),
    /// Describe a file or a directory
    Stat(Stat),
    /// Remove files and directories
    Rm(Remove),
    /// Give a file or a directory, and all below it, another path
    Mv(Move),
    /// Change the permission bits
    Chmod(Chmod),
    /// Change the owner and the group
    Chown(Chown),
    /// Give each cell of a file a number of bytes
    Resize(Resize),
    /// Show, set or lift the limit of what a user's files may take
    Quota(Quota),
    /// Show how full the volume is
    Df(Df),
    /// Copy a local file into a file of the volume, through a view
    Import(Import),
    /// Copy a file of the volume, as a view shows it, into a local file
    Export(Export),
    /// Keep a file as it is now, so that it can be brought back
    Checkpoint(OneFile),
    /// Make a file what it was at its checkpoint
    Rollback(OneFile),
    /// Write a file, as a view shows it, to the standard output
    Cat(Cat),
    /// Check a volume that nobody uses; exit code 1 if something is found
    Fsck(Fsck),
    /// Make the directory of one more server of a volume
    AddServer(AddServer),
    /// Spread a volume over its servers, or over some of them, while it is used; exit code 1 if a
    /// file could not be moved
    Rebalance(Rebalance),
}

#[derive(Args)]
pub(crate) struct AddServer {
    /// The path of the volume, with {server} in it for the number of each server if need be
    pub(crate) volume: String,
    /// The volume to which the server belongs, where its path or the URL of its servers is another
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) like: Option<String>,
    /// The number of the new server [default: the next one]
    #[arg(long, value_name = "N")]
    pub(crate) server: Option<usize>,
    /// The size of its blocks, which are allocated [default: they grow, up to the space that is
    /// free now]
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<String>,
    /// A disk of the server: a directory or a raw device, with {server} in it; several times for
    /// several [default: a file in the server's directory]
    #[arg(long = "disk", value_name = "PATH")]
    pub(crate) disks: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Rebalance {
    /// The volume, or the URL of its servers
    pub(crate) volume: String,
    /// The servers that are to have the volume [default: all]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(crate) servers: Vec<usize>,
    /// Servers that are to have nothing; others that have nothing now stay so
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        conflicts_with = "servers"
    )]
    pub(crate) drain: Vec<usize>,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CreateVolume {
    /// The path of the volume, with {server} in it for the number of each server if need be
    pub(crate) volume: String,
    /// The number of servers; more can be added later
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) servers: usize,
    /// The size of a block
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) block: String,
    /// The size of each server's blocks, which are allocated [default: they grow, up to the space
    /// that is free now]
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<String>,
    /// A disk of each server: a directory or a raw device, with {server} in it; several times for
    /// several [default: a file in the server's directory]
    #[arg(long = "disk", value_name = "PATH")]
    pub(crate) disks: Vec<String>,
}

#[derive(Args)]
pub(crate) struct List {
    /// The volume
    pub(crate) volume: String,
    /// A directory or a file in it
    #[arg(default_value = "/")]
    pub(crate) path: String,
    /// Mode, owner, group, bytes of all cells, cells, and time of the last change
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Directories below it, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Mkdir {
    /// The volume
    pub(crate) volume: String,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Make those above, too, and be content with what is there
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// The permission bits
    #[arg(long, default_value = "755", value_parser = mode)]
    pub(crate) mode: u16,
}

#[derive(Args)]
pub(crate) struct Structure {
    /// The number of cells
    #[arg(long, value_name = "N")]
    pub(crate) cells: Option<u64>,
    /// The size of a basic striping unit
    #[arg(long, value_name = "SIZE")]
    pub(crate) bsu: Option<String>,
    /// The server of the first cell [default: one that the volume chooses]
    #[arg(long, value_name = "SERVER")]
    pub(crate) base: Option<usize>,
    /// The permission bits
    #[arg(long, default_value = "644", value_parser = mode)]
    pub(crate) mode: u16,
}

#[derive(Args)]
pub(crate) struct Create {
    /// The volume
    pub(crate) volume: String,
    /// The file
    pub(crate) path: String,
    /// Cells: by default one a server; basic striping units: by default as large as a block
    #[command(flatten)]
    pub(crate) structure: Structure,
}

#[derive(Args)]
pub(crate) struct Stat {
    /// The volume
    pub(crate) volume: String,
    /// The file or directory
    pub(crate) path: String,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Remove {
    /// The volume
    pub(crate) volume: String,
    /// Files, and directories that are empty
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Remove what is in directories first
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

#[derive(Args)]
pub(crate) struct Move {
    /// The volume
    pub(crate) volume: String,
    /// The path
    pub(crate) old: String,
    /// A path at which there is nothing
    pub(crate) new: String,
}

#[derive(Args)]
pub(crate) struct Chmod {
    /// The volume
    pub(crate) volume: String,
    /// The permission bits, as in 640
    #[arg(value_parser = mode)]
    pub(crate) mode: u16,
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Chown {
    /// The volume
    pub(crate) volume: String,
    /// The numbers of a user, of a user and a group (1000:100), or of a group alone (:100)
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: String,
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Resize {
    /// The volume
    pub(crate) volume: String,
    /// The file
    pub(crate) path: String,
    /// The size of each cell: what is cut off is lost, what is new is zero
    pub(crate) size: String,
}

#[derive(Args)]
pub(crate) struct Quota {
    /// The volume
    pub(crate) volume: String,
    /// The number of the user
    pub(crate) user: u32,
    /// The most bytes of blocks on all servers together, or none for no limit [default: show it]
    #[arg(value_name = "SIZE|none")]
    pub(crate) limit: Option<String>,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Df {
    /// The volume
    pub(crate) volume: String,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The order of the bytes of a subfile.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Order {
    /// Down the cells within each block of the view
    Block,
    /// Row by row
    Row,
    /// Cell by cell: takes memory for the whole subfile
    Column,
}

#[derive(Args)]
pub(crate) struct Shown {
    /// The view, which deals the file out to vn * hn subfiles
    #[arg(long, value_name = "VBS,VN,HBS,HN", default_value = "1,1,1,1", value_parser = view)]
    pub(crate) view: penstock_layout::View,
    /// The number of the subfile
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) subfile: u64,
    /// The order of its bytes
    #[arg(long, value_enum, default_value = "block")]
    pub(crate) order: Order,
    /// Memory that the data may take
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) memory: String,
}

#[derive(Args)]
pub(crate) struct Import {
    /// The volume
    pub(crate) volume: String,
    /// The local file
    pub(crate) local: PathBuf,
    /// The file in the volume, which is made if it is not there
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Of a new file: by default a cell a server, and basic striping units as large as a block
    #[command(flatten)]
    pub(crate) structure: Structure,
}

#[derive(Args)]
pub(crate) struct Export {
    /// The volume
    pub(crate) volume: String,
    /// The file in the volume
    pub(crate) path: String,
    /// The local file
    pub(crate) local: PathBuf,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// The file as it was at its checkpoint
    #[arg(long)]
    pub(crate) checkpoint: bool,
    /// Replace a local file
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Args)]
pub(crate) struct Cat {
    /// The volume
    pub(crate) volume: String,
    /// The file in the volume
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// The file as it was at its checkpoint
    #[arg(long)]
    pub(crate) checkpoint: bool,
}

#[derive(Args)]
pub(crate) struct OneFile {
    /// The volume
    pub(crate) volume: String,
    /// The file
    pub(crate) path: String,
}

#[derive(Args)]
pub(crate) struct Fsck {
    /// The volume
    pub(crate) volume: String,
    /// Read all blocks, too, and compare them with their checksums
    #[arg(long)]
    pub(crate) data: bool,
    /// Mend what can be mended; what has lost its place comes to /lost+found
    #[arg(long)]
    pub(crate) mend: bool,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "permission bits are written as 640".to_string())
}

fn view(text: &str) -> Result<penstock_layout::View, String> {
    let numbers: Result<Vec<u64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
    let numbers = numbers
        .ok()
        .and_then(|numbers| <[u64; 4]>::try_from(numbers).ok());
    let numbers = numbers.ok_or("a view is four numbers, as in 1,1,1,4: vbs, vn, hbs, hn")?;
    penstock_layout::View::try_from(numbers).map_err(|error| error.to_string())
}
