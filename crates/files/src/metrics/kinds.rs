//! The kinds of what a server counts, with the names that people see.

use penstock_engine::Operation;

/// Makes an enum whose variants have names, and a list of them in their order.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All, in the order of their numbers.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// The name that people see.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

named! {
    /// The kind of a client's request.
    RequestKind {
        /// Read bytes of cells.
        Read = "read",
        /// Write bytes of cells.
        Write = "write",
        /// Take part in a collective read. Its time begins when the last client has come.
        ReadAll = "read_all",
        /// Take part in a collective write, likewise.
        WriteAll = "write_all",
        /// Attach a file.
        Attach = "attach",
        /// Detach a file.
        Detach = "detach",
        /// Look at the attributes of an object.
        Stat = "stat",
        /// List a directory.
        List = "list",
        /// Make an object.
        Create = "create",
        /// Remove an object.
        Remove = "remove",
        /// Give an object another path.
        Rename = "rename",
        /// Give an object other attributes.
        Set = "set",
        /// Resize, checkpoint or roll back a file.
        Change = "change",
        /// Look at the size of a file.
        Size = "size",
        /// Look who has a file attached.
        Status = "status",
        /// Save a file, or all.
        Sync = "sync",
        /// Bring blocks into memory.
        Prefetch = "prefetch",
        /// Store blocks that were changed.
        Flush = "flush",
        /// Look how full the volume is.
        Space = "space",
        /// Limit a user.
        Quota = "quota",
        /// Wait for the other clients of a program, whose time does not count.
        Meet = "meet",
        /// Make or move a shared pointer.
        Pointer = "pointer",
        /// Look at these numbers.
        Metrics = "metrics",
        /// Something that no client may ask for.
        Other = "other",
    }
}

impl RequestKind {
    /// The kind of an access.
    pub(crate) fn of_access(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write => Self::Write,
        }
    }

    /// The kind of a client's part in a collective request.
    pub(crate) fn of_collective(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::ReadAll,
            Operation::Write => Self::WriteAll,
        }
    }

    /// Whether bytes that it moves are read, and not written.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadAll)
    }
}

named! {
    /// The kind of a wait.
    WaitKind {
        /// Requests wait until the server serves.
        Start = "start",
        /// Parts of requests to several servers wait for their tokens.
        Token = "token",
        /// Requests wait for others of the same file that come before them, and conflict.
        Turn = "turn",
        /// Collective requests wait for some of their clients.
        Clients = "clients",
        /// Blocks wait for a disk, or are on their way from or to it.
        Disk = "disk",
    }
}

named! {
    /// The kind of a disk operation.
    DiskKind {
        /// A block is read.
        Read = "read",
        /// A block is written.
        Write = "write",
        /// Writes are made safe.
        Sync = "sync",
    }
}
