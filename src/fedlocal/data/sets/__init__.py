"""One file per data set: a9a, FEMNIST, MNIST by writer, fMRI scans, heart disease, epsilon, digits."""
