//! Opens an array's chunks with the reader or writer for the array's codecs.

use std::sync::Arc;

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Assignment, DiskSchema};
use penstock_machines::Medium;

use super::chunks::{Location, remove_chunks_from};
use super::metadata::{Layout, Plain};
use super::objects::Objects;
use super::{encoded, objects, plain, shard_update, shards};
use crate::fs::direct::AccessMode;

impl Location {
    /// Opens the chunks for writing, if [`Location::check_writable`] allows that.
    pub(crate) fn open_write(
        &self,
        server: usize,
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if let Some(of) = &self.spread {
            let home = of.make(server)?;
            Self::remove_aside(&home)?;
            if let Some(base) = of.base_of_server(server).filter(|base| base.is_dir()) {
                Self::remove_aside(&base)?;
            }
            if self.grows {
                // An abandoned write may have left chunks beyond the last stored row.
                let held = u64::from(schema.rows_before() > 0);
                remove_chunks_from(self.first_chunk + held, &home)?;
            }
        }
        let (layout, chunks) = self.open(server, schema)?;
        if is_url(&self.directory) {
            let objects = Objects::new(chunks)?;
            return Ok(match self.grows {
                true => Arc::new(objects::Grower::new(objects, layout)),
                false => Arc::new(objects::Writer::new(objects, layout)),
            });
        }
        Ok(match layout {
            Layout::Plain(layout) => Arc::new(plain::Writer::new(chunks, layout, way)),
            Layout::Encoded(coder) => Arc::new(encoded::Writer::new(chunks, coder)),
            Layout::Shards(form) => Arc::new(shards::Writer::new(chunks, *form)),
        })
    }

    /// Opens the chunks to be read and changed in place, if [`Location::check_updatable`] allows
    /// that, and removes what an unfinished change has left.
    pub(crate) fn open_update(
        &self,
        server: (usize, usize),
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if schema.assignment() == Assignment::Blocks {
            let cause = "a chunk is changed by one server, and here by several";
            return Err(Error::new(Kind::Schema, "changing in place", cause).at(&self.directory));
        }
        if is_url(&self.directory) {
            let (layout, chunks) = self.open(server.0, schema)?;
            let (whole, _) = self.form.open(&self.directory, true)?;
            let reader = objects::Reader::new(Objects::new(chunks)?, layout);
            return Ok(Arc::new(objects::Updater::new(reader, whole)));
        }
        self.check_updatable()?;
        match &self.spread {
            Some(of) => {
                of.take_up(server, schema)?;
                Self::remove_aside_of(&of.of_server(server.0), server)?;
            }
            None => Self::remove_aside_of(&self.directory, server)?,
        }
        let (layout, chunks) = self.open(server.0, schema)?;
        Ok(match layout {
            Layout::Plain(layout) => Arc::new(plain::Updater::new(chunks, layout, way)),
            Layout::Encoded(coder) => Arc::new(encoded::Writer::updater(chunks, coder)),
            Layout::Shards(form) => Arc::new(shard_update::Updater::new(chunks, *form)),
        })
    }

    /// Opens the chunks for reading.
    pub(crate) fn open_read(
        &self,
        server: (usize, usize),
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if let Some(of) = &self.spread {
            of.check(server, schema)?;
        }
        let (layout, chunks) = self.open(server.0, schema)?;
        if is_url(&self.directory) {
            return Ok(Arc::new(objects::Reader::new(
                Objects::new(chunks)?,
                layout,
            )));
        }
        Ok(match layout {
            Layout::Plain(Plain { element, fill }) => {
                Arc::new(plain::Reader::new(chunks, element, fill, way))
            }
            Layout::Encoded(coder) => Arc::new(encoded::Reader::new(chunks, coder)),
            Layout::Shards(form) => Arc::new(shards::Reader::new(chunks, *form)),
        })
    }
}
