//! `penstock fs`: volumes of parallel files.
//!
//! Each command opens the volume in this process, with all of its servers, and closes it at its
//! end; nobody else can use the volume meanwhile. Or it calls the servers of a volume that stand.
//!
//! | file | contents |
//! |---|---|
//! | [`arguments`] | the arguments of all commands |
//! | `mod` | names, attributes and space |
//! | `show` | what is told of files and directories |
//! | `transfer` | import, export and cat |
//! | `fsck` | checks |
//! | `rebalance` | servers that come and go |

pub(crate) mod arguments;
mod fsck;
mod rebalance;
mod show;
mod transfer;

use penstock_engine::Kind;
use penstock_files::disk::{self, CreateOptions};
use penstock_files::job::{FileSystem, JobOptions, open};
use penstock_files::transfer::Party;
use penstock_files::{FileChange, FilePath, ObjectKind, VolumeSpace};
use penstock_trace::sizes::bytes;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, counted};
use arguments::{Chown, CreateVolume, Df, Fs, Mkdir, Quota, Remove, Structure};

/// Runs a command on a volume.
pub(crate) fn run(fs: &Fs) -> Result<(), Failure> {
    match fs {
        Fs::CreateVolume(asked) => create_volume(asked),
        Fs::Ls(asked) => with_volume(&asked.volume, |fs| show::list(fs, asked)),
        Fs::Mkdir(asked) => with_volume(&asked.volume, |fs| make_directories(fs, asked)),
        Fs::Create(asked) => with_volume(&asked.volume, |fs| {
            create(fs, path(&asked.path)?, &asked.structure)
        }),
        Fs::Stat(asked) => with_volume(&asked.volume, |fs| show::stat(fs, asked)),
        Fs::Rm(asked) => with_volume(&asked.volume, |fs| remove_all(fs, asked)),
        Fs::Mv(asked) => with_volume(&asked.volume, |fs| {
            Ok(fs.rename(path(&asked.old)?, path(&asked.new)?)?)
        }),
        Fs::Chmod(asked) => with_volume(&asked.volume, |fs| {
            protect(fs, &asked.paths, (Some(asked.mode), None, None))
        }),
        Fs::Chown(asked) => with_volume(&asked.volume, |fs| {
            let (user, group) = owner(asked)?;
            protect(fs, &asked.paths, (None, user, group))
        }),
        Fs::Resize(asked) => with_volume(&asked.volume, |fs| {
            let change = FileChange::Resize(bytes(&asked.size)?);
            Ok(fs.change(path(&asked.path)?, change)?)
        }),
        Fs::Quota(asked) => with_volume(&asked.volume, |fs| quota(fs, asked)),
        Fs::Df(asked) => with_volume(&asked.volume, |fs| space(fs, asked)),
        Fs::Import(asked) => with_volume(&asked.volume, |fs| {
            transfer::import(fs, asked, Party::Alone)
        }),
        Fs::Export(asked) => with_volume(&asked.volume, |fs| {
            transfer::export(fs, asked, Party::Alone)
        }),
        Fs::Checkpoint(asked) => with_volume(&asked.volume, |fs| {
            Ok(fs.change(path(&asked.path)?, FileChange::Checkpoint)?)
        }),
        Fs::Rollback(asked) => with_volume(&asked.volume, |fs| {
            Ok(fs.change(path(&asked.path)?, FileChange::RollBack)?)
        }),
        Fs::Cat(asked) => with_volume(&asked.volume, |fs| transfer::cat(fs, asked)),
        Fs::Fsck(asked) => fsck::run(asked),
        Fs::AddServer(asked) => rebalance::add_server(asked),
        Fs::Rebalance(asked) => with_volume(&asked.volume, |fs| rebalance::run(fs, asked)),
    }
}

fn path(text: &str) -> Result<FilePath, Failure> {
    Ok(FilePath::new(text)?)
}

/// Runs a command as one of the clients of an MPI job, which `open` makes of a process.
pub(crate) fn run_in(
    fs: &Fs,
    open: impl FnOnce(&str) -> penstock_engine::Result<Option<FileSystem>>,
) -> Result<(), Failure> {
    match fs {
        Fs::Import(asked) => act_in(open(&asked.volume)?, |fs| {
            transfer::import(fs, asked, Party::All)
        }),
        Fs::Export(asked) => act_in(open(&asked.volume)?, |fs| {
            transfer::export(fs, asked, Party::All)
        }),
        _ => Err(Failure::input(
            "of fs, only import and export run under mpiexec",
        )),
    }
}

/// Opens a volume, acts, and closes the volume, which saves what was done.
fn with_volume(
    volume: &str,
    act: impl FnOnce(&FileSystem) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let fs = open(volume, None, None, &JobOptions::default(), None)?;
    act_in(Some(fs), act)
}

/// Acts in a volume that is open, and closes it. A process that has served alone has nothing to do.
fn act_in(
    fs: Option<FileSystem>,
    act: impl FnOnce(&FileSystem) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(fs) = fs else {
        return Ok(());
    };
    let done = act(&fs);
    let closed = fs.close();
    done?;
    Ok(closed?)
}

fn create_volume(asked: &CreateVolume) -> Result<(), Failure> {
    let options = CreateOptions {
        block_bytes: bytes(&asked.block)?,
        capacity: asked.capacity.as_deref().map(bytes).transpose()?,
        disks: asked.disks.clone(),
        ..CreateOptions::new(asked.servers)
    };
    disk::create(&asked.volume, &options)?;
    output::text(&format!(
        "made {} with {}, blocks of {} bytes\n",
        asked.volume,
        counted(options.servers as u64, "server"),
        options.block_bytes
    ))
}

fn make_directories(fs: &FileSystem, asked: &Mkdir) -> Result<(), Failure> {
    for name in &asked.paths {
        let path = path(name)?;
        if asked.parents {
            let above = std::iter::successors(path.parent(), FilePath::parent);
            let mut above: Vec<FilePath> = above.collect();
            above.reverse();
            for directory in above.into_iter().chain([path]) {
                make_unless_there(fs, directory, asked.mode)?;
            }
        } else {
            fs.make_directory(path, asked.mode)?;
        }
    }
    Ok(())
}

fn make_unless_there(fs: &FileSystem, path: FilePath, mode: u16) -> Result<(), Failure> {
    match fs.make_directory(path.clone(), mode) {
        Err(error) if error.kind == Kind::Exists => match fs.stat(path)?.0.kind {
            ObjectKind::Xref => Ok(()),
            ObjectKind::File(_) | ObjectKind::Symlink(_) => Err(error.into()),
        },
        made => Ok(made.map(|_| ())?),
    }
}

/// Makes a file. What is left open of its structure fits the volume.
fn create(fs: &FileSystem, path: FilePath, structure: &Structure) -> Result<(), Failure> {
    fs.create(path, shape(fs, structure)?, structure.mode)?;
    Ok(())
}

fn shape(fs: &FileSystem, structure: &Structure) -> Result<(u64, u64, Option<usize>), Failure> {
    let bsu_bytes = structure.bsu.as_deref().map(bytes).transpose()?;
    Ok(fs.shape(structure.cells, bsu_bytes, structure.base))
}

fn remove_all(fs: &FileSystem, asked: &Remove) -> Result<(), Failure> {
    for name in &asked.paths {
        let path = path(name)?;
        match asked.recursive {
            true => remove_below(fs, path)?,
            false => fs.remove(path)?,
        }
    }
    Ok(())
}

/// Removes an object, after all that is below it.
fn remove_below(fs: &FileSystem, path: FilePath) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut waiting = vec![path];
    while let Some(path) = waiting.pop() {
        if fs.stat(path.clone())?.0.kind == ObjectKind::Xref {
            for (name, _) in fs.list(path.clone())? {
                waiting.push(path.join(&name)?);
            }
        }
        found.push(path);
    }
    // What is above comes before what is below it.
    for path in found.into_iter().rev() {
        fs.remove(path)?;
    }
    Ok(())
}

fn protect(
    fs: &FileSystem,
    paths: &[String],
    settings: (Option<u16>, Option<u32>, Option<u32>),
) -> Result<(), Failure> {
    for name in paths {
        fs.protect(path(name)?, settings)?;
    }
    Ok(())
}

/// The user and the group of a text such as `1000:100`.
fn owner(asked: &Chown) -> Result<(Option<u32>, Option<u32>), Failure> {
    let (user, group) = match asked.owner.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (&asked.owner[..], None),
    };
    let number = |text: &str| {
        let wrong = |_| Failure::input(format!("{text:?} is no number of a user or a group"));
        text.parse::<u32>().map_err(wrong)
    };
    let user = Some(user).filter(|user| !user.is_empty());
    match (user, group) {
        (None, None) => Err(Failure::input("say which user, or which group")),
        (user, group) => Ok((
            user.map(number).transpose()?,
            group.map(number).transpose()?,
        )),
    }
}

fn quota(fs: &FileSystem, asked: &Quota) -> Result<(), Failure> {
    match asked.limit.as_deref() {
        Some("none") => return Ok(fs.limit(asked.user, None)?),
        Some(limit) => return Ok(fs.limit(asked.user, Some(bytes(limit)?))?),
        None => {}
    }
    let space = fs.space(asked.user)?;
    let (used, limit) = (space.of_user_bytes, space.limit_bytes);
    if asked.json {
        return print_json(&json!({"user": asked.user, "used_bytes": used, "limit_bytes": limit}));
    }
    let limit = limit.map_or("no limit".to_string(), |limit| {
        format!("{limit} bytes at most")
    });
    output::text(&format!("user {}: {used} bytes, {limit}\n", asked.user))
}

fn space(fs: &FileSystem, asked: &Df) -> Result<(), Failure> {
    let servers = fs.space_by_server(fs.identity().user)?;
    let used: Vec<u64> = servers.iter().map(|one| one.used_bytes).collect();
    let servers = servers.into_iter();
    let space = servers.fold(VolumeSpace::default(), VolumeSpace::and);
    let free = space.bytes.saturating_sub(space.used_bytes);
    if asked.json {
        return print_json(&json!({
            "bytes": space.bytes,
            "used_bytes": space.used_bytes,
            "free_bytes": free,
            "servers": fs.servers(),
            "used_bytes_of_servers": used,
            "block_bytes": fs.block_bytes(),
        }));
    }
    let mut text = format!(
        "bytes      {}\nused       {}\nfree       {free}\nservers    {}\nblock      {}\n",
        space.bytes,
        space.used_bytes,
        fs.servers(),
        fs.block_bytes()
    );
    for (server, used) in used.iter().enumerate() {
        text += &format!("server {server:<3} {used} used\n");
    }
    output::text(&text)
}

/// Prints JSON for people and programs.
fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    output::text(&(text + "\n"))
}
