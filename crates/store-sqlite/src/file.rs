//! The file on disk: who may read it, that one process has it, and which marks it carried last.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use portero_store::{Error, ErrorKind, Result};

/// An exclusive lock on `<database>.lock`, held until this is dropped or the process ends, however it ends.
///
/// The lock is not on the database file itself: SQLite locks that one, and closing any other handle on it would drop
/// SQLite's locks (POSIX).
///
/// It holds the marks that the database may carry, one a line: a file that was restored from elsewhere carries another one.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

/// Longest list of marks that is read, bytes.
const MARKS_BYTES_MAX: u64 = 4_096;

impl FileLock {
    /// Makes the folder and the file when they are missing, and takes the lock. Blocks on the file system, briefly.
    pub(crate) fn acquire(database: &Path) -> Result<Self> {
        if let Some(folder) = database.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            create_folder(folder).map_err(unusable)?;
        }
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        let file = private_file(Path::new(&name)).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::FailedPrecondition,
                    "another process has this database open; an SQLite database serves one gateway at a time",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        // SQLite gives the files of its write-ahead log the mode of the database file.
        private_file(database).map_err(unusable)?;
        Ok(Self { file })
    }

    /// The marks that the database may carry; none beside a new one. Blocks on the file system, briefly.
    pub(crate) fn marks(&self) -> Result<Vec<String>> {
        let read = || {
            let mut file = &self.file;
            file.rewind()?;
            let mut text = String::new();
            file.take(MARKS_BYTES_MAX).read_to_string(&mut text)?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        read().map_err(unusable)
    }

    /// Replaces the marks, on the disk when this returns. Blocks on the file system, briefly.
    pub(crate) fn set_marks(&self, marks: &[&str]) -> Result<()> {
        let write = || {
            let mut file = &self.file;
            file.rewind()?;
            file.set_len(0)?;
            marks.iter().try_for_each(|mark| writeln!(file, "{mark}"))?;
            file.sync_data()
        };
        write().map_err(unusable)
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    if fs::metadata(folder).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn unusable(error: io::Error) -> Error {
    Error::with_source(ErrorKind::Unavailable, "the database file cannot be created or opened", error)
}
