module github.com/notifyq/notifyq/providers

go 1.26

require github.com/notifyq/notifyq v0.0.0

replace github.com/notifyq/notifyq => ../
