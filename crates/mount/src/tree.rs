//! The inodes that the kernel knows, and their paths.
//!
//! The number of an inode is that of its object, which no other object ever has: 1 for the root.
//! Views have small numbers, which no object has. A path may be out of date when another mount has
//! renamed something; the kernel looks names up again when its time for them is over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::Errno;
use penstock_files::{FilePath, ObjectId};

use crate::errno::Answer;
use crate::views::ViewName;

/// The number of the root.
const ROOT: u64 = 1;

/// The number of an object's inode.
pub(crate) fn number_of(id: ObjectId) -> u64 {
    id.0.max(ROOT)
}

/// An inode.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The object.
    pub(crate) id: ObjectId,
    /// The path of the object.
    pub(crate) path: FilePath,
    /// The view, if the name has one.
    pub(crate) view: Option<ViewName>,
    /// Whether the object has lost its name, and is there only as long as it is open.
    pub(crate) is_removed: bool,
    /// The mode, as it was seen last.
    pub(crate) mode: u16,
    /// The lookups that the kernel has not forgotten.
    lookups: u64,
    /// The number of open files.
    opens: u32,
    /// Whether somebody is about to remove the object.
    is_leaving: bool,
    /// The time of the last change and the size, as they were when the file was opened last.
    seen: Option<(u64, u64)>,
}

#[derive(Default)]
struct Nodes {
    by_number: HashMap<u64, Node>,
    views: HashMap<(ObjectId, ViewName), u64>,
    last_view: u64,
    /// The objects that were closed without a name, and are not removed yet.
    going: usize,
}

/// The inodes that the kernel knows.
#[derive(Default)]
pub(crate) struct Tree(Mutex<Nodes>);

impl Tree {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the kernel gets to know an object, or a view of it, and gives the inode's number.
    pub(crate) fn look_up(
        &self,
        id: ObjectId,
        path: &FilePath,
        view: Option<ViewName>,
        mode: u16,
    ) -> u64 {
        let mut nodes = self.nodes();
        let number = match view {
            None => number_of(id),
            Some(view) => match nodes.views.get(&(id, view)) {
                Some(&number) => number,
                None => {
                    nodes.last_view = nodes.last_view.max(ROOT) + 1;
                    let number = nodes.last_view;
                    nodes.views.insert((id, view), number);
                    number
                }
            },
        };
        let node = nodes.by_number.entry(number).or_insert_with(|| Node {
            id,
            path: path.clone(),
            view,
            is_removed: false,
            mode,
            lookups: 0,
            opens: 0,
            is_leaving: false,
            seen: None,
        });
        node.lookups += 1;
        node.mode = mode;
        if !node.is_removed {
            node.path.clone_from(path);
        }
        number
    }

    /// An inode.
    pub(crate) fn get(&self, number: u64) -> Answer<Node> {
        if let Some(node) = self.nodes().by_number.get(&number) {
            return Ok(node.clone());
        }
        match number {
            ROOT => Ok(Node {
                id: ObjectId::ROOT,
                path: FilePath::root(),
                view: None,
                is_removed: false,
                mode: 0,
                lookups: 1,
                opens: 0,
                is_leaving: false,
                seen: None,
            }),
            _ => Err(Errno::ESTALE),
        }
    }

    /// Notes that the kernel forgets lookups.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.by_number.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        nodes.clear(number);
    }

    /// Notes the mode of an inode.
    pub(crate) fn set_mode(&self, number: u64, mode: u16) {
        if let Some(node) = self.nodes().by_number.get_mut(&number) {
            node.mode = mode;
        }
    }

    /// Gives all inodes at a path, or below it, another path.
    pub(crate) fn rename(&self, from: &FilePath, to: &FilePath) {
        for node in self.nodes().by_number.values_mut() {
            if node.path == *from || node.path.is_below(from) {
                // Where the new path is too long, the object is out of reach.
                if let Ok(path) = node.path.moved(from, to) {
                    node.path = path;
                }
            }
        }
    }

    /// Notes that a file is about to be opened.
    pub(crate) fn open(&self, number: u64) -> Answer<()> {
        match self.nodes().by_number.get_mut(&number) {
            Some(node) if !node.is_leaving => {
                node.opens += 1;
                Ok(())
            }
            Some(_) => Err(Errno::ENOENT),
            None => Err(Errno::ESTALE),
        }
    }

    /// Notes that a file is closed. Gives its path if it has lost its name, and is open no more.
    pub(crate) fn close(&self, number: u64) -> Option<FilePath> {
        let mut nodes = self.nodes();
        let node = nodes.by_number.get_mut(&number)?;
        node.opens = node.opens.saturating_sub(1);
        let (id, path) = (node.id, node.path.clone());
        let is_removed = node.is_removed;
        let is_over = is_removed && !nodes.is_open(id);
        nodes.clear(number);
        nodes.going += usize::from(is_over);
        is_over.then_some(path)
    }

    /// Begins the removal of an object from its path. Gives whether it is open, here or as a view:
    /// then it needs another path. If not, nobody opens it until the removal has ended.
    pub(crate) fn begin_removal(&self, id: ObjectId) -> bool {
        let mut nodes = self.nodes();
        let is_open = nodes.is_open(id);
        for number in nodes.numbers_of(id) {
            if let Some(node) = nodes.by_number.get_mut(&number) {
                node.is_leaving = !is_open;
            }
        }
        is_open
    }

    /// Ends the removal of an object. Its inodes lose their names, if it was removed. Gives the
    /// path that the object was `kept` at while it was open, if it is open no more.
    pub(crate) fn end_removal(
        &self,
        id: ObjectId,
        is_removed: bool,
        kept: Option<FilePath>,
    ) -> Option<FilePath> {
        let mut nodes = self.nodes();
        for number in nodes.numbers_of(id) {
            if let Some(node) = nodes.by_number.get_mut(&number) {
                node.is_leaving &= is_removed;
                node.is_removed |= is_removed;
            }
        }
        let left = kept.filter(|_| is_removed && !nodes.is_open(id));
        nodes.going += usize::from(left.is_some());
        left
    }

    /// Notes that an object which had lost its name, and was open no more, was removed.
    pub(crate) fn gone(&self) {
        self.nodes().going -= 1;
    }

    /// The number of objects that have lost their names, and are still there.
    pub(crate) fn nameless(&self) -> usize {
        let nodes = self.nodes();
        let open = nodes.by_number.values().filter(|node| node.opens > 0);
        open.filter(|node| node.is_removed).count() + nodes.going
    }

    /// Notes the time of the last change and the size of a file that is opened. Gives whether they
    /// are as they were when it was opened before.
    pub(crate) fn see(&self, number: u64, version: (u64, u64)) -> bool {
        let mut nodes = self.nodes();
        let node = nodes.by_number.get_mut(&number);
        node.is_some_and(|node| node.seen.replace(version) == Some(version))
    }
}

impl Nodes {
    /// The numbers of an object and of its views.
    fn numbers_of(&self, id: ObjectId) -> Vec<u64> {
        let views = self.views.iter().filter(|((of, _), _)| *of == id);
        let views = views.map(|(_, &number)| number);
        std::iter::once(number_of(id)).chain(views).collect()
    }

    /// Whether an object is open, itself or as a view.
    fn is_open(&self, id: ObjectId) -> bool {
        let mut numbers = self.numbers_of(id).into_iter();
        numbers.any(|number| {
            self.by_number
                .get(&number)
                .is_some_and(|node| node.opens > 0)
        })
    }

    /// Drops an inode that nobody needs.
    fn clear(&mut self, number: u64) {
        let is_needed = |node: &Node| node.lookups > 0 || node.opens > 0;
        if self
            .by_number
            .get(&number)
            .is_some_and(|node| !is_needed(node))
        {
            self.by_number.remove(&number);
            self.views.retain(|_, of| *of != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::new(text).unwrap()
    }

    #[test]
    fn inodes_follow_their_paths() {
        let tree = Tree::default();
        let view = ViewName::read("f@1,1,1,2:1").map(|(_, view)| view);
        let (file, other) = (ObjectId(7 << 48), ObjectId(8 << 48));
        let number = tree.look_up(file, &path("/a/f"), None, 0o644);
        let of_view = tree.look_up(file, &path("/a/f"), view, 0o644);
        tree.look_up(other, &path("/ab"), None, 0o644);
        assert_eq!((number, of_view), (7 << 48, 2));
        tree.rename(&path("/a"), &path("/b/c"));
        assert_eq!(tree.get(number).unwrap().path, path("/b/c/f"));
        assert_eq!(tree.get(of_view).unwrap().path, path("/b/c/f"));
        assert_eq!(tree.get(8 << 48).unwrap().path, path("/ab"));
        assert!(!tree.see(number, (1, 2)) && tree.see(number, (1, 2)));
        assert!(!tree.see(number, (1, 3)));
        tree.forget(number, 1);
        assert_eq!(tree.get(number).unwrap_err(), Errno::ESTALE);
        tree.look_up(file, &path("/b/c/f"), view, 0o644);
        tree.forget(of_view, 2);
        assert!(tree.get(of_view).is_err());
        assert_eq!(tree.get(ROOT).unwrap().path, FilePath::root());
    }

    #[test]
    fn open_objects_are_not_removed() {
        let tree = Tree::default();
        let file = ObjectId(7 << 48);
        let number = tree.look_up(file, &path("/f"), None, 0o644);
        tree.open(number).unwrap();
        assert!(tree.begin_removal(file));
        tree.rename(&path("/f"), &path("/hidden"));
        assert_eq!(tree.end_removal(file, true, Some(path("/hidden"))), None);
        tree.open(number).unwrap();
        assert_eq!((tree.close(number), tree.nameless()), (None, 1));
        assert_eq!(tree.close(number), Some(path("/hidden")));
        assert_eq!(tree.nameless(), 1);
        tree.gone();
        assert_eq!(tree.nameless(), 0);
        let other = ObjectId(8 << 48);
        let number = tree.look_up(other, &path("/g"), None, 0o644);
        assert!(!tree.begin_removal(other));
        assert_eq!(tree.open(number), Err(Errno::ENOENT));
        tree.end_removal(other, false, None);
        tree.open(number).unwrap();
        assert!(tree.begin_removal(other));
        assert_eq!(tree.close(number), None); // while it gets its other path
        let kept = Some(path("/kept"));
        assert_eq!(tree.end_removal(other, true, kept.clone()), kept);
    }
}
