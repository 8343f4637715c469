//! Groups: `penstock_group`, timesteps, checkpoints, restarts.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use penstock_arrays::calls::FoundCheckpoint;
use penstock_arrays::calls::array::{LocalPart, Memory as MemorySchema};
use penstock_arrays::calls::save::{GroupCall, Save};
use penstock_arrays::calls::settings::Background;
use penstock_arrays::groups::{Coordinate, Values};
use penstock_arrays::json;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Dist, Dists, exact};
use serde_json::{Map, Value};

use crate::array::{Array, attributes_of, element_of, texts_of};
use crate::border::{Many, Options, Place, Text, answer, enter, give_text, needed, wrong};
use crate::call::{CallOptions, Split};
use crate::local::{Locals, Memory, Report, put_report};
use crate::session::{Session, Shared};

/// `penstock_group`.
pub struct Group {
    name: String,
    path: String,
    arrays: Vec<Array>,
    coordinates: Vec<Coordinate>,
    attributes: Map<String, Value>,
    time_attributes: Map<String, Value>,
    time_chunk: Option<u64>,
    keep: usize,
}

/// How many checkpoints are kept by default.
const KEEP: usize = 2;

/// `penstock_locals`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayLocals<'a> {
    pub count: usize,
    pub memories: Many<'a, Memory<'a>>,
}

impl Group {
    fn find(&self, name: &str) -> Option<usize> {
        let mut arrays = self.arrays.iter();
        arrays.position(|array| array.call.schema.name == name)
    }

    /// The path, below the session's root.
    fn place(&self, session: &Shared) -> PathBuf {
        session.below_root(&self.path)
    }

    /// The group as a call takes it, of these arrays, with this rank's parts of them. The parts of
    /// an array of rows determine the number of rows.
    fn with_locals(
        &self,
        session: &Shared,
        arrays: &[Array],
        locals: Many<'_, ArrayLocals<'_>>,
    ) -> Result<(GroupCall, Vec<Vec<LocalPart>>)> {
        if arrays.is_empty() {
            return Err(wrong(format!("the group {:?} has no array", self.name)));
        }
        let rank = session.rank()?;
        let locals = locals.needed(arrays.len(), "the local arrays of a group")?;
        let parts = arrays.iter().zip(locals).map(|(array, own)| {
            let ArrayLocals { count, memories } = *own;
            Locals::Several(count, memories).parts(array, rank)
        });
        let parts: Vec<Vec<LocalPart>> = parts.collect::<Result<_>>()?;
        let calls = arrays.iter().zip(&parts).map(|(array, parts)| {
            let mut call = array.call.clone();
            if let MemorySchema::Rows { count } = &mut call.memory {
                let first = parts.first();
                let rows = first.and_then(|part| part.memory.extents.first());
                *count = rows.copied().unwrap_or(0);
            }
            call
        });
        let group = GroupCall {
            name: self.name.clone(),
            path: self.place(session),
            arrays: calls.collect(),
            coordinates: self.coordinates.clone(),
            attributes: self.attributes.clone(),
            time_attributes: self.time_attributes.clone(),
            time_chunk: self.time_chunk,
            keep: self.keep,
            bounded: BTreeSet::new(), // nothing in C looks at bounds
        };
        Ok((group, parts))
    }
}

/// An array that a group may have.
///
/// # Errors
/// [`Kind::Schema`] for a region, which is of one call, and for names that groups use themselves.
fn member(array: Option<&Array>) -> Result<&Array> {
    let array = needed(array, "the array")?;
    let name = &array.call.schema.name;
    if array.call.is_region() {
        let cause = format!("'{name}' has a region, and a group saves whole arrays");
        return Err(wrong(cause));
    }
    if name == "time" || name == "checkpoints" || name.starts_with('.') {
        let cause = format!("an array of a group cannot be named '{name}': taken, or hidden");
        return Err(wrong(cause));
    }
    Ok(array)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_create(
    name: Text<'_>,
    path: Text<'_>,
    mut group: Place<'_, Option<Box<Group>>>,
) -> c_int {
    enter(|| {
        group.put(None);
        group.check("the group")?;
        group.put_handle(Group {
            name: name.needed("name")?.to_string(),
            path: path.needed("path")?.to_string(),
            arrays: Vec::new(),
            coordinates: Vec::new(),
            attributes: Map::new(),
            time_attributes: Map::new(),
            time_chunk: None,
            keep: KEEP,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_free(group: Option<Box<Group>>) {
    answer((), || drop(group));
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_add(group: Option<&mut Group>, array: Option<&Array>) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        let array = member(array)?;
        let name = &array.call.schema.name;
        if group.find(name).is_some() {
            return Err(wrong(format!("the group has an array '{name}' already")));
        }
        group.arrays.push(array.clone());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_replace(
    group: Option<&mut Group>,
    array: Option<&Array>,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        let array = member(array)?;
        let name = &array.call.schema.name;
        let place = group.find(name);
        let place = place.ok_or_else(|| wrong(format!("the group has no array '{name}'")))?;
        group.arrays[place] = array.clone();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_set_keep(group: Option<&mut Group>, keep: u64) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        if keep == 0 {
            return Err(wrong("keep must be at least 1"));
        }
        group.keep = usize::try_from(keep).map_err(wrong)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_set_attributes(
    group: Option<&mut Group>,
    json: Text<'_>,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        group.attributes = attributes_of(json.needed("attributes")?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_set_time_attributes(
    group: Option<&mut Group>,
    json: Text<'_>,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        group.time_attributes = attributes_of(json.needed("attributes")?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_set_time_chunk(
    group: Option<&mut Group>,
    timesteps: u64,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        if timesteps == 0 {
            return Err(wrong("a chunk has at least 1 timestep"));
        }
        group.time_chunk = Some(timesteps);
        Ok(())
    })
}

// --- static variables ----------------------------------------------------------------------------

/// A static variable as the program gives it, without its values.
struct Variable<'a> {
    name: Text<'a>,
    dims: usize,
    dimension_names: Many<'a, Text<'a>>,
    shape: Many<'a, u64>,
    attributes: Text<'a>,
}

impl Variable<'_> {
    /// The shape, and the number of elements.
    fn shape(&self) -> Result<(Vec<u64>, usize)> {
        let shape = self.shape.needed(self.dims, "shape")?;
        let elements = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
        let elements = elements.and_then(|elements| usize::try_from(elements).ok());
        let elements =
            elements.ok_or_else(|| wrong(format!("the shape {shape:?} is too large")))?;
        Ok((shape.to_vec(), elements))
    }

    /// Adds the variable to a group.
    fn add_to(self, group: &mut Group, shape: Vec<u64>, values: Values) -> Result<()> {
        let name = self.name.needed("name")?.to_string();
        let is_there = group.coordinates.iter().any(|known| known.name == name);
        if is_there {
            return Err(wrong(format!(
                "the group has a coordinate '{name}' already"
            )));
        }
        let attributes = self.attributes.optional("attributes")?;
        let coordinate = Coordinate {
            name,
            dimensions: texts_of(self.dimension_names, self.dims, "a dimension's name")?,
            shape,
            values,
            attributes: attributes.map_or(Ok(Map::new()), attributes_of)?,
        };
        coordinate.check()?;
        group.coordinates.push(coordinate);
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_add_coordinate(
    group: Option<&mut Group>,
    name: Text<'_>,
    dims: usize,
    dimension_names: Many<'_, Text<'_>>,
    shape: Many<'_, u64>,
    dtype: Text<'_>,
    values: Many<'_, u8>,
    attributes: Text<'_>,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        let variable = Variable {
            name,
            dims,
            dimension_names,
            shape,
            attributes,
        };
        let element = element_of(dtype)?;
        let (shape, elements) = variable.shape()?;
        let bytes = elements.checked_mul(exact(element.width()));
        let bytes = bytes.ok_or_else(|| wrong(format!("the shape {shape:?} is too large")))?;
        let values = values.needed(bytes, "values")?.to_vec();
        variable.add_to(group, shape, Values::Elements(element, values))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_group_add_labels(
    group: Option<&mut Group>,
    name: Text<'_>,
    dims: usize,
    dimension_names: Many<'_, Text<'_>>,
    shape: Many<'_, u64>,
    values: Many<'_, Text<'_>>,
    attributes: Text<'_>,
) -> c_int {
    enter(|| {
        let group = needed(group, "the group")?;
        let variable = Variable {
            name,
            dims,
            dimension_names,
            shape,
            attributes,
        };
        let (shape, elements) = variable.shape()?;
        let values = texts_of(values, elements, "a label")?;
        variable.add_to(group, shape, Values::Strings(values))
    })
}

// --- saves ---------------------------------------------------------------------------------------

/// A save as the program gives it.
struct Asked<'a> {
    group: Option<&'a Group>,
    locals: Many<'a, ArrayLocals<'a>>,
    options: Options<'a, CallOptions<'a>>,
    is_checkpoint: bool,
    is_split: bool,
}

/// A save that this rank is ready for.
struct Ready {
    group: GroupCall,
    parts: Vec<Vec<LocalPart>>,
    save: Save,
    background: Option<Background>,
}

impl Asked<'_> {
    fn ready(&self, session: &Shared) -> Result<Ready> {
        let group = needed(self.group, "the group")?;
        let options = self.options.read()?;
        if options.strategy.optional("strategy")?.is_some() {
            return Err(wrong("a group is saved disk-directed: give no strategy"));
        }
        let time = (!options.time.is_nan()).then_some(options.time);
        let save = match self.is_checkpoint {
            false => {
                options.check_no_attributes()?;
                Save::Timestep(time)
            }
            true => {
                let attributes = options.attributes.optional("attributes")?;
                Save::Checkpoint {
                    step: u64::try_from(options.step).ok(),
                    time,
                    attributes: attributes.map_or(Ok(Map::new()), attributes_of)?,
                }
            }
        };
        let background = options.background(self.is_split)?;
        let (group, parts) = group.with_locals(session, &group.arrays, self.locals)?;
        Ok(Ready {
            group,
            parts,
            save,
            background,
        })
    }

    fn run(&self, session: Option<&Session>, report: Place<'_, Report>) -> Result<()> {
        let session = &needed(session, "the session")?.0;
        let saved = session.together(
            || self.ready(session),
            |calls, ready| calls.save(ready.group, ready.parts, ready.save),
        )?;
        put_report(report, saved);
        Ok(())
    }

    fn begin(
        &self,
        session: Option<&Session>,
        mut split: Place<'_, Option<Box<Split>>>,
    ) -> Result<()> {
        split.put(None);
        let session = &needed(session, "the session")?.0;
        let prepare = || {
            split.check("the split call")?;
            self.ready(session)
        };
        let begun = session.together(prepare, |calls, ready| {
            let keeps = Box::new(()); // the program keeps its memory itself
            calls.begin_save(
                ready.group,
                ready.parts,
                ready.save,
                ready.background,
                keeps,
            )
        })?;
        split.put_handle(Split::new(session, begun));
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_timestep(
    session: Option<&Session>,
    group: Option<&Group>,
    locals: Many<'_, ArrayLocals<'_>>,
    options: Options<'_, CallOptions<'_>>,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        group,
        locals,
        options,
        is_checkpoint: false,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_begin_timestep(
    session: Option<&Session>,
    group: Option<&Group>,
    locals: Many<'_, ArrayLocals<'_>>,
    options: Options<'_, CallOptions<'_>>,
    split: Place<'_, Option<Box<Split>>>,
) -> c_int {
    let asked = Asked {
        group,
        locals,
        options,
        is_checkpoint: false,
        is_split: true,
    };
    enter(|| asked.begin(session, split))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint(
    session: Option<&Session>,
    group: Option<&Group>,
    locals: Many<'_, ArrayLocals<'_>>,
    options: Options<'_, CallOptions<'_>>,
    report: Place<'_, Report>,
) -> c_int {
    let asked = Asked {
        group,
        locals,
        options,
        is_checkpoint: true,
        is_split: false,
    };
    enter(|| asked.run(session, report))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_begin_checkpoint(
    session: Option<&Session>,
    group: Option<&Group>,
    locals: Many<'_, ArrayLocals<'_>>,
    options: Options<'_, CallOptions<'_>>,
    split: Place<'_, Option<Box<Split>>>,
) -> c_int {
    let asked = Asked {
        group,
        locals,
        options,
        is_checkpoint: true,
        is_split: true,
    };
    enter(|| asked.begin(session, split))
}

// --- restarts ------------------------------------------------------------------------------------

/// `penstock_checkpoint_state`.
pub struct CheckpointState(FoundCheckpoint);

impl CheckpointState {
    /// An array as it is restarted: one of rows has its extent, and an even share of it on each of
    /// `clients` ranks.
    ///
    /// # Errors
    /// [`Kind::Missing`] when the checkpoint has no such array.
    fn restarted(&self, array: &Array, clients: usize) -> Result<Array> {
        if !array.call.is_ragged() {
            return Ok(array.clone());
        }
        let name = &array.call.schema.name;
        let known = self.0.shapes.iter().find(|(known, _)| known == name);
        let Some((_, shape)) = known else {
            let cause = format!("the checkpoint has no array '{name}'");
            return Err(Error::new(Kind::Missing, "restarting", cause).at(&self.0.path));
        };
        let mut call = array.call.clone();
        let mut dists = vec![Dist::Whole; shape.len()];
        if let Some(first) = dists.first_mut() {
            *first = Dist::Block;
        }
        call.memory = MemorySchema::Distribution {
            dists: Dists(dists),
            mesh: vec![clients as u64],
            halo: Vec::new(),
        };
        call.schema.shape.clone_from(shape);
        Ok(Array::new(call))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_find_checkpoint(
    session: Option<&Session>,
    group: Option<&Group>,
    step: i64,
    mut state: Place<'_, Option<Box<CheckpointState>>>,
) -> c_int {
    enter(|| {
        state.put(None);
        let session = &needed(session, "the session")?.0;
        let prepare = || {
            state.check("the checkpoint")?;
            Ok(needed(group, "the group")?.place(session))
        };
        let step = u64::try_from(step).ok();
        let found = session.together(prepare, |calls, path| calls.find_checkpoint(&path, step))?;
        state.put(found.map(|found| Box::new(CheckpointState(found))));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_restart(
    session: Option<&Session>,
    group: Option<&Group>,
    state: Option<&CheckpointState>,
    locals: Many<'_, ArrayLocals<'_>>,
    report: Place<'_, Report>,
) -> c_int {
    enter(|| {
        let session = &needed(session, "the session")?.0;
        let prepare = || {
            let state = needed(state, "the checkpoint")?;
            let group = needed(group, "the group")?;
            let arrays = group.arrays.iter();
            let arrays = arrays.map(|array| state.restarted(array, session.clients()));
            let arrays: Vec<Array> = arrays.collect::<Result<_>>()?;
            let (call, parts) = group.with_locals(session, &arrays, locals)?;
            Ok((&state.0, call, parts))
        };
        let read = session.together(prepare, |calls, (found, group, parts)| {
            calls.restart(found, &group, parts)
        })?;
        put_report(report, read);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_step(state: Option<&CheckpointState>) -> u64 {
    state.map_or(0, |state| state.0.checkpoint.step)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_time(state: Option<&CheckpointState>) -> f64 {
    let time = state.and_then(|state| state.0.checkpoint.time);
    time.unwrap_or(f64::NAN)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_timesteps(state: Option<&CheckpointState>) -> u64 {
    state.map_or(0, |state| state.0.checkpoint.timesteps)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_attributes(
    state: Option<&CheckpointState>,
    json: Place<'_, *mut c_char>,
) -> c_int {
    give_text(json, || {
        let state = needed(state, "the checkpoint")?;
        Ok(json::line(&state.0.attributes.clone().into()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_array(
    session: Option<&Session>,
    group: Option<&Group>,
    state: Option<&CheckpointState>,
    name: Text<'_>,
    mut array: Place<'_, Option<Box<Array>>>,
) -> c_int {
    enter(|| {
        array.put(None);
        array.check("the array")?;
        let session = &needed(session, "the session")?.0;
        let group = needed(group, "the group")?;
        let state = needed(state, "the checkpoint")?;
        let name = name.needed("name")?;
        let place = group.find(name);
        let place = place.ok_or_else(|| wrong(format!("the group has no array '{name}'")))?;
        array.put_handle(state.restarted(&group.arrays[place], session.clients())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_checkpoint_free(state: Option<Box<CheckpointState>>) {
    answer((), || drop(state));
}
