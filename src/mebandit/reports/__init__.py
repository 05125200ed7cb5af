"""One look for everything that people read: tables, figures and pages."""
