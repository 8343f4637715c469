//! What a declaration adds to the file of a group.

use std::collections::BTreeSet;

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{AllElements, Attribute, Element, FileForm, Hdf5File, NewDataset};
use penstock_layout::exact;
use serde_json::{Map, Value};

use super::super::coordinate::{Coordinate, Values};
use super::super::declared::{ArrayDeclaration, Declaration};
use super::super::metadata::{TIMES, about_rows, grown};
use crate::dtype::ElementType;
use crate::formats::hdf5::attributes;
use crate::formats::hdf5::mark::{GroupMark, dataset_of};
use crate::formats::record::{Record, TIME};
use crate::schema::{ArraySchema, Storage};
use crate::write::FileArray;

/// What a declaration adds to a file.
pub(super) struct Additions<'a> {
    pub(super) form: FileForm,
    /// The mark with all of it.
    pub(super) mark: GroupMark,
    /// Datasets, which have no elements yet.
    datasets: Vec<(String, NewDataset)>,
    coordinates: Vec<&'a Coordinate>,
    /// Attributes of objects that are there, or are no datasets: path, name and value.
    attributes: Vec<(String, String, Attribute)>,
}

impl<'a> Additions<'a> {
    /// What is not in an open file, or in none, whose mark is `former`. Coordinates that are there
    /// are compared with the declared ones if it `is_first`.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there; [`Kind::Unsupported`] for what such a file
    /// does not have.
    pub(super) fn new(
        opened: Option<&Hdf5File>,
        former: &GroupMark,
        declared: &'a Declaration,
        is_first: bool,
        form: FileForm,
    ) -> Result<Self> {
        let refused = |cause: String| Err(Error::new(Kind::Schema, "writing to a group", cause));
        let exists = |path: &str| opened.is_some_and(|file| file.exists(path));
        let known = &former.group;
        let is_new = |array: &&ArrayDeclaration| !known.arrays.contains_key(&array.schema.name);
        let mut mark = former.clone();
        for array in declared.arrays.iter().filter(is_new) {
            let dataset = dataset_of(&array.schema);
            mark.datasets.insert(array.schema.name.clone(), dataset);
            mark.group.add(array);
        }
        check_apart(&mark)?;
        let mut datasets = Vec::new();
        // Times come first, which are a dimension of the others.
        for (name, element, about) in numbers_of(&mark.group, declared) {
            if known.arrays.is_empty() || !exists(&mark.dataset(&name)) {
                let schema = ArraySchema {
                    attributes: about,
                    ..of_time(&name, element, form)
                };
                datasets.push(growing(schema, &mark, form)?);
            }
        }
        for array in declared.arrays.iter().filter(is_new) {
            let schema = grown(array, mark.group.time_chunk);
            datasets.push(growing(schema, &mark, form)?);
        }
        if let Some((path, _)) = datasets.iter().find(|(path, _)| exists(path)) {
            return refused(format!("{path} is there, and Penstock has not made it"));
        }
        let mut coordinates = Vec::new();
        for coordinate in &declared.coordinates {
            match opened.filter(|_| exists(&format!("/{}", coordinate.name))) {
                None => coordinates.push(coordinate),
                Some(opened) if is_first => compare(coordinate, opened, form)?,
                Some(_) => {}
            }
        }
        Ok(Self {
            attributes: changed_attributes(opened, declared, form)?,
            form,
            mark,
            datasets,
            coordinates,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datasets.is_empty() && self.coordinates.is_empty() && self.attributes.is_empty()
    }

    /// Adds all to a file but the mark.
    pub(super) fn make(&self, file: &mut Hdf5File) -> Result<()> {
        let form = self.form;
        let mut datasets = self.datasets.clone();
        let mut texts = Vec::new();
        for coordinate in &self.coordinates {
            let path = format!("/{}", coordinate.name);
            match &coordinate.values {
                Values::Elements(element, _) => {
                    datasets.push((path, of_coordinate(coordinate, element.clone(), form)?));
                }
                Values::Strings(strings) => {
                    let shape: Vec<usize> = coordinate.shape.iter().map(|&n| exact(n)).collect();
                    let attributes = attributes::of_json(&coordinate.attributes, form)?;
                    file.put_texts(&path, &shape, strings, &attributes, form)?;
                    texts.push((path, coordinate.dimensions.clone()));
                }
            }
        }
        file.put_all(&datasets, &texts, &[], form)?;
        for coordinate in &self.coordinates {
            if let Values::Elements(_, bytes) = &coordinate.values
                && !bytes.is_empty()
            {
                let start = vec![0; coordinate.shape.len()];
                let path = format!("/{}", coordinate.name);
                file.set_elements(&path, &start, &coordinate.shape, bytes)?;
            }
        }
        let mut attributes = self.attributes.iter();
        attributes.try_for_each(|(path, name, value)| file.set_attribute(path, name, value, form))
    }
}

/// The numbers of timesteps, each with its name, type and attributes; times are the first.
fn numbers_of(
    record: &Record,
    declared: &Declaration,
) -> Vec<(String, ElementType, Map<String, Value>)> {
    let of_time = (
        TIME.to_string(),
        ElementType::F8,
        declared.time_attributes.clone(),
    );
    let of_rows = record
        .rows
        .keys()
        .flat_map(|dimension| about_rows(dimension));
    let of_rows = of_rows.map(|(name, about)| {
        let about = about.as_object().cloned().unwrap_or_default();
        (name, ElementType::I8, about)
    });
    std::iter::once(of_time).chain(of_rows).collect()
}

/// A dataset of the group that is to be made, with the length of the record.
fn growing(
    mut schema: ArraySchema,
    mark: &GroupMark,
    form: FileForm,
) -> Result<(String, NewDataset)> {
    schema.shape[0] = mark.group.length(&schema.name).unwrap_or(0);
    let mut grows = vec![false; schema.shape.len()];
    grows[0] = true;
    let path = mark.dataset(&schema.name);
    let array = FileArray {
        path: path.clone(),
        schema,
        grows,
        from: None,
    };
    Ok((path, array.without_elements(form)?))
}

/// The declared attributes that are not in the file as declared, but for those of datasets that are
/// not there: path, name and value.
fn changed_attributes(
    opened: Option<&Hdf5File>,
    declared: &Declaration,
    form: FileForm,
) -> Result<Vec<(String, String, Attribute)>> {
    let json = |map: &Map<String, Value>| attributes::of_json(map, form);
    let (own, of_time) = (&declared.attributes, &declared.time_attributes);
    let mut all = vec![
        (String::new(), own, json(own)?),
        (format!("/{TIME}"), of_time, json(of_time)?),
    ];
    for array in &declared.arrays {
        let own = &array.schema.attributes;
        let values = attributes::of_array(own, &array.schema.element, form)?;
        all.push((dataset_of(&array.schema), own, values));
    }
    let mut changed = Vec::new();
    for (path, own, values) in all {
        let there = match opened {
            Some(file) if file.exists(&path) => {
                attributes::to_json(file.attributes(&path)?, file.is_netcdf())
            }
            _ if path.is_empty() => Map::new(), // the root of a new file
            _ => continue,
        };
        let is_new = |name: &String| there.get(name) != own.get(name);
        let values = values.into_iter().filter(|(name, _)| is_new(name));
        changed.extend(values.map(|(name, value)| (path.clone(), name, value)));
    }
    Ok(changed)
}

/// The dataset of a coordinate, as one run of elements.
fn of_coordinate(
    coordinate: &Coordinate,
    element: ElementType,
    form: FileForm,
) -> Result<NewDataset> {
    let disk = Storage::Hdf5 {
        dataset: String::new(),
        chunk: None,
        filters: "none".to_string(),
        is_netcdf: form == FileForm::NetCdf,
    };
    let array = FileArray {
        path: format!("/{}", coordinate.name),
        schema: ArraySchema {
            dimension_names: Some(coordinate.dimensions.clone()),
            attributes: coordinate.attributes.clone(),
            ..ArraySchema::new(&coordinate.name, &coordinate.shape, element, disk)
        },
        grows: vec![false; coordinate.shape.len()],
        from: None,
    };
    array.without_elements(form)
}

/// Compares a coordinate with the stored one.
fn compare(coordinate: &Coordinate, opened: &Hdf5File, form: FileForm) -> Result<()> {
    let path = format!("/{}", coordinate.name);
    let differs = |what: &str| {
        let cause = format!("the {what} there are not those of the call");
        let doing = format!("declaring the coordinate {:?}", coordinate.name);
        Err(Error::new(Kind::Schema, doing, cause))
    };
    let found = opened.outline(&path)?;
    if found
        .as_ref()
        .is_none_or(|found| found.shape != coordinate.shape)
    {
        return differs("shape and type");
    }
    let there = found.map(|found| found.element);
    let elements = opened.all_elements(&path)?;
    let is_same = match (&coordinate.values, elements) {
        (Values::Elements(element, bytes), Some(AllElements::Numbers(stored))) => {
            let own = of_coordinate(coordinate, element.clone(), form)?.element;
            if there != Some(Element::Stored(own)) {
                return differs("shape and type");
            }
            stored == *bytes
        }
        (Values::Strings(strings), Some(AllElements::Texts(stored))) => stored == *strings,
        _ => return differs("shape and type"),
    };
    match is_same {
        true => Ok(()),
        false => differs("values"),
    }
}

/// Checks that each array, and each kind of number of timesteps, has a dataset of its own.
fn check_apart(mark: &GroupMark) -> Result<()> {
    let mut taken = BTreeSet::new();
    for name in mark.group.names() {
        let dataset = mark.dataset(&name);
        if !taken.insert(dataset.clone()) {
            let cause = format!("{dataset} is to be the dataset of two arrays");
            return Err(Error::new(Kind::Schema, "describing a group", cause));
        }
    }
    Ok(())
}

/// The schema of an array with one number for each timestep.
fn of_time(name: &str, element: ElementType, form: FileForm) -> ArraySchema {
    let disk = Storage::Hdf5 {
        dataset: String::new(),
        chunk: Some(vec![TIMES]),
        filters: "none".to_string(),
        is_netcdf: form == FileForm::NetCdf,
    };
    ArraySchema {
        dimension_names: Some(vec![TIME.to_string()]),
        ..ArraySchema::new(name, &[0], element, disk)
    }
}
