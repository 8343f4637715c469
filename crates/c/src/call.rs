//! Calls about one array: writes and reads, at once or split.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

use penstock_arrays::calls::array::{ArrayCall, LocalPart};
use penstock_arrays::calls::settings::{Background, Outstanding, SplitOptions};
use penstock_engine::{Operation, Result, Strategy};

use crate::array::{Array, attributes_of};
use crate::border::{Many, Options, Place, Text, Versioned, enter, give_text, needed, wrong};
use crate::local::{Locals, Memory, Report, is_true, put_report};
use crate::session::{Session, Shared, strategy_of};

/// `penstock_call_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallOptions<'a> {
    pub size: usize,
    pub strategy: Text<'a>,
    pub background: Text<'a>,
    pub attributes: Text<'a>,
    pub time: f64,
    pub step: i64,
}

impl Versioned for CallOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        strategy: Text::NULL,
        background: Text::NULL,
        attributes: Text::NULL,
        time: f64::NAN,
        step: -1,
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_call_options";
}

impl CallOptions<'_> {
    /// What is in the background of a split call; any other call has nothing there.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Schema`] for an unknown word, and in a call that is not split.
    pub fn background(&self, is_split: bool) -> Result<Option<Background>> {
        let word = self.background.optional("background")?;
        if word.is_some() && !is_split {
            return Err(wrong(
                "a call that is not begun has nothing in the background",
            ));
        }
        word.map(Background::named).transpose()
    }

    /// Refuses attributes of a call that stores none.
    pub fn check_no_attributes(&self) -> Result<()> {
        match self.attributes.optional("attributes")? {
            None => Ok(()),
            Some(_) => Err(wrong("this call stores no attributes")),
        }
    }
}

/// A call as the program gives it.
struct Asked<'a> {
    path: Text<'a>,
    array: Option<&'a Array>,
    locals: Locals<'a>,
    options: Options<'a, CallOptions<'a>>,
    operation: Operation,
    is_split: bool,
}

/// A call that this rank is ready for.
struct Ready {
    path: PathBuf,
    array: ArrayCall,
    parts: Vec<LocalPart>,
    strategy: Option<Strategy>,
    background: Option<Background>,
}

impl Asked<'_> {
    fn ready(&self, session: &Shared) -> Result<Ready> {
        let array = whole(self.array)?;
        let options = self.options.read()?;
        let mut call = array.call.clone();
        match self.operation {
            Operation::Read => options.check_no_attributes()?,
            Operation::Write => {
                if let Some(more) = options.attributes.optional("attributes")? {
                    call.schema.attributes.extend(attributes_of(more)?);
                }
            }
        }
        Ok(Ready {
            path: session.path(self.path, "path")?,
            parts: self.locals.parts(array, session.rank()?)?,
            array: call,
            strategy: strategy_of(options.strategy)?,
            background: options.background(self.is_split)?,
        })
    }

    fn run(&self, session: Option<&Session>, report: Place<'_, Report>) -> Result<()> {
        let session = &needed(session, "the session")?.0;
        let done = session.together(
            || self.ready(session),
            |calls, ready| {
                let Ready {
                    path,
                    array,
                    parts,
                    strategy,
                    ..
                } = ready;
                match self.operation {
                    Operation::Write => calls.write(&path, array, parts, strategy),
                    Operation::Read => calls.read(&path, array, parts, strategy),
                }
            },
        )?;
        put_report(report, done);
        Ok(())
    }

    fn begin(
        &self,
        session: Option<&Session>,
        mut split: Place<'_, Option<Box<Split>>>,
    ) -> Result<()> {
        split.put(None);
        let session = &needed(session, "the session")?.0;
        let begun = session.together(
            || {
                split.check("the split call")?;
                self.ready(session)
            },
            |calls, ready| {
                let split = SplitOptions {
                    strategy: ready.strategy,
                    background: ready.background,
                };
                let keeps = Box::new(()); // the program keeps its memory itself
                let (path, array, parts) = (ready.path, ready.array, ready.parts);
                match self.operation {
                    Operation::Write => calls.begin_write(&path, array, parts, split, keeps),
                    Operation::Read => calls.begin_read(&path, array, parts, split, keeps),
                }
            },
        )?;
        split.put_handle(Split::new(session, begun));
        Ok(())
    }
}

/// An array that can be moved by itself.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] for one of rows.
fn whole(array: Option<&Array>) -> Result<&Array> {
    let array = needed(array, "the array")?;
    if array.call.is_ragged() {
        let name = &array.call.schema.name;
        return Err(wrong(format!(
            "'{name}' is of rows: it is saved with a group"
        )));
    }
    Ok(array)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_write(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    local: *mut c_void,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::One(local),
        options: Options::NULL,
        operation: Operation::Write,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_read(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    local: *mut c_void,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::One(local),
        options: Options::NULL,
        operation: Operation::Read,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_write_parts(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    options: Options<'_, CallOptions<'_>>,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::Several(count, locals),
        options,
        operation: Operation::Write,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_read_parts(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    options: Options<'_, CallOptions<'_>>,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::Several(count, locals),
        options,
        operation: Operation::Read,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_begin_write(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    options: Options<'_, CallOptions<'_>>,
    split: Place<'_, Option<Box<Split>>>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::Several(count, locals),
        options,
        operation: Operation::Write,
        is_split: true,
    };
    enter(|| asked.begin(session, split))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_begin_read(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    options: Options<'_, CallOptions<'_>>,
    split: Place<'_, Option<Box<Split>>>,
) -> c_int {
    let asked = Asked {
        path,
        array,
        locals: Locals::Several(count, locals),
        options,
        operation: Operation::Read,
        is_split: true,
    };
    enter(|| asked.begin(session, split))
}

// --- split calls ---------------------------------------------------------------------------------

/// `penstock_split`.
pub struct Split {
    session: Arc<Shared>,
    call: Outstanding,
}

impl Split {
    /// A call of a session that has begun.
    pub fn new(session: &Arc<Shared>, call: Outstanding) -> Self {
        Self {
            session: session.clone(),
            call,
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_split_test(
    split: Option<&Split>,
    mut has_ended: Place<'_, c_int>,
) -> c_int {
    enter(|| {
        has_ended.check("the answer")?;
        let Split { session, call } = needed(split, "the split call")?;
        let ended = session.alone(|calls| Ok(calls.has_ended(call)))?;
        has_ended.put(c_int::from(ended));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_split_end(
    split: Option<Box<Split>>,
    report: Place<'_, Report>,
) -> c_int {
    enter(|| {
        let Split { session, call } = *needed(split, "the split call")?;
        let ended = session.alone(|calls| calls.end(&call))?;
        put_report(report, ended);
        Ok(())
    })
}

// --- not collective ------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_explain(
    session: Option<&Session>,
    path: Text<'_>,
    array: Option<&Array>,
    is_write: c_int,
    strategy: Text<'_>,
    text: Place<'_, *mut c_char>,
) -> c_int {
    give_text(text, || {
        let session = &needed(session, "the session")?.0;
        let (path, array) = (session.path(path, "path")?, whole(array)?);
        let strategy = strategy_of(strategy)?;
        let operation = match is_true(is_write) {
            true => Operation::Write,
            false => Operation::Read,
        };
        session.alone(|calls| calls.explain(&path, &array.call, operation, strategy))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_open(
    session: Option<&Session>,
    path: Text<'_>,
    name: Text<'_>,
    mut array: Place<'_, Option<Box<Array>>>,
) -> c_int {
    enter(|| {
        array.put(None);
        array.check("the array")?;
        let session = &needed(session, "the session")?.0;
        let path = session.path(path, "path")?;
        let name = name.optional("name")?;
        let schema = session.alone(|calls| calls.describe(&path, name))?;
        array.put_handle(Array::stored(schema));
        Ok(())
    })
}
